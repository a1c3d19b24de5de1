package execution

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/local"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

func TestWhatAnExistingClusterTakes(t *testing.T) {
	c := &state.Cluster{
		Name: "c", NumNodes: 2, Ports: []string{"8080"},
		Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "east", Zone: "a"}, InstanceType: "p4", Accelerators: map[string]float64{"A100": 8}},
	}
	yes, no := true, false
	for _, tt := range []struct {
		name string
		n    int
		r    task.Resources
		exec bool
		fits bool
	}{
		{"nothing asked", 1, task.Resources{}, false, true},
		{"as many nodes", 2, task.Resources{}, false, true},
		{"too many nodes", 3, task.Resources{}, false, false},
		{"the same place", 1, task.Resources{Cloud: "aws", Region: "east", Zone: "a"}, false, true},
		{"another cloud", 1, task.Resources{Cloud: "gcp"}, false, false},
		{"another region", 1, task.Resources{Region: "west"}, false, false},
		{"one of several regions", 1, task.Resources{Regions: []string{"west", "east"}}, false, true},
		{"none of several zones", 1, task.Resources{Zones: []string{"b"}}, false, false},
		{"another machine", 1, task.Resources{InstanceType: "p5"}, false, false},
		{"some of the GPUs", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "a100", Count: 4}}}, false, true},
		{"half a GPU", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "A100", Count: 0.5}}}, false, true},
		{"more GPUs", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "A100", Count: 16}}}, false, false},
		{"other GPUs", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "H100", Count: 1}}}, false, false},
		{"GPUs by their memory", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "40GB+", Count: 1}}}, true, true},
		{"GPUs of a maker by their memory", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "nvidia:40GB", Count: 8}}}, true, true},
		{"more GPUs by their memory", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "40GB+", Count: 9}}}, true, false},
		{"GPUs with more memory", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "80GB+", Count: 1}}}, true, false},
		{"GPUs of another maker", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "amd:40GB", Count: 1}}}, true, false},
		{"a part of another GPU's name", 1, task.Resources{Accelerators: []task.Accelerator{{Name: "A10", Count: 1}}}, true, false},
		{"spot asked, on demand rented", 1, task.Resources{UseSpot: &yes}, false, false},
		{"on demand asked and rented", 1, task.Resources{UseSpot: &no}, false, true},
		{"CPUs are not looked at", 1, task.Resources{CPUs: "999+", Memory: "9999"}, false, true},
		{"a slower disk", 1, task.Resources{DiskTier: "low"}, false, true},
		{"a faster disk", 1, task.Resources{DiskTier: "high"}, false, false},
		{"the best disk there is", 1, task.Resources{DiskTier: "best"}, false, true},
		{"a port that is open", 1, task.Resources{Ports: []string{"8080"}}, true, true},
		{"a port that is not open, exec", 1, task.Resources{Ports: []string{"9090"}}, true, false},
		{"a port that is not open, launch", 1, task.Resources{Ports: []string{"9090"}}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := fits(c, &task.Task{NumNodes: tt.n, Resources: []task.Resources{tt.r}}, tt.exec)
			if (err == nil) != tt.fits {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("any request that fits is enough", func(t *testing.T) {
		err := fits(c, &task.Task{NumNodes: 1, Resources: []task.Resources{{Cloud: "gcp"}, {Cloud: "aws"}}}, false)
		if err != nil {
			t.Error(err)
		}
	})
}

// A task that asks for larger machines than a cluster has is told so; what it may not
// do without is an error.
func TestAClusterInABlockedPlaceIsNotUsed(t *testing.T) {
	c := &state.Cluster{Name: "c", NumNodes: 1, Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1"}}}
	for _, blocked := range []string{"us-east-1", "us-west-2"} {
		err := fits(c, &task.Task{NumNodes: 1, Resources: []task.Resources{{}}, BlockedResources: []task.BlockedResources{{Cloud: "aws", Region: blocked}}}, true)
		if refused := err != nil && strings.Contains(err.Error(), "blocked_resources exclude it: aws/us-east-1"); refused != (blocked == "us-east-1") {
			t.Errorf("%s blocked: %v", blocked, err)
		}
	}
}

func TestASmallerClusterIsSaid(t *testing.T) {
	c := &state.Cluster{NumNodes: 1, Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws"}, CPUs: 2, MemoryGiB: 8}}
	for _, tt := range []struct {
		name string
		r    []task.Resources
		want string
	}{
		{"nothing asked for", []task.Resources{{}}, ""},
		{"as much", []task.Resources{{CPUs: "2", Memory: "8"}}, ""},
		{"less", []task.Resources{{CPUs: "1", Memory: "4+"}}, ""},
		{"as much for each CPU", []task.Resources{{Memory: "4x"}}, ""},
		{"more CPUs", []task.Resources{{CPUs: "4+"}}, "2 CPUs (the task asks for 4+)"},
		{"more of both", []task.Resources{{CPUs: "4", Memory: "16+"}}, "2 CPUs (the task asks for 4) and 8 GB of memory (the task asks for 16+)"},
		{"more for each CPU", []task.Resources{{Memory: "8x"}}, "8 GB of memory (the task asks for 8x)"},
		{"a larger disk", []task.Resources{{DiskSize: 500}}, "a system disk of 256 GB (the task asks for 500)"},
		{"a faster network", []task.Resources{{NetworkTier: "best"}}, "the standard network (the task asks for best)"},
		{"local disks", []task.Resources{{LocalDisk: "100+"}}, "the system disk (the task asks for local disks: 100+)"},
		{"one that fits is enough", []task.Resources{{CPUs: "4"}, {CPUs: "2"}}, ""},
		{"one that is elsewhere does not count", []task.Resources{{Cloud: "gcp", CPUs: "1"}, {CPUs: "8"}}, "2 CPUs (the task asks for 8)"},
	} {
		if got := smaller(c, &task.Task{NumNodes: 1, Resources: tt.r}, false); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	c.Offer.CPUs = 1
	if got, want := smaller(c, &task.Task{NumNodes: 1, Resources: []task.Resources{{CPUs: "2"}}}, false), "1 CPU (the task asks for 2)"; got != want {
		t.Errorf("of one CPU: %q, want %q", got, want)
	}
	c.Offer.CPUs, c.Offer.MemoryGiB = 0, 0 // not known
	if got := smaller(c, &task.Task{NumNodes: 1, Resources: []task.Resources{{CPUs: "4", Memory: "16"}}}, false); got != "" {
		t.Errorf("of a machine of unknown size: %q", got)
	}
}

func TestAClusterHasTheDisksOfTheTask(t *testing.T) {
	c := &state.Cluster{Machine: cloud.MachineSpec{Disks: []cloud.Disk{{Path: "/data", Name: "d"}, {Path: "/fast"}}}}
	for _, tt := range []struct {
		name, path, want string
	}{
		{"d", "/data", ""}, {"", "/fast", ""}, {"d", "/other", "the disk d at /other"}, {"e", "/data", "the disk e at /data"}, {"", "/data", "the disk of its own at /data"},
	} {
		volume := map[string]any{"path": tt.path}
		if tt.name != "" {
			volume["name"] = tt.name
		}
		if got := mismatch(c, &task.Task{}, task.Resources{Volumes: []map[string]any{volume}}, false); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s at %s: %q, want %q", tt.name, tt.path, got, tt.want)
		}
	}
}

// Where nodes use disks that are there already, a size of disk is said to have no effect.
func TestASizeOfDiskThatHasNoEffectIsSaid(t *testing.T) {
	p := local.New(local.Options{Root: t.TempDir()})
	for size, want := range map[int]string{0: "", 500: "⚠ The disk size of 500 GB has no effect on local: "} {
		var out bytes.Buffer
		warnDisk(cluster.Call{Out: output{&out}}, p, &task.Task{Resources: []task.Resources{{DiskSize: size}}})
		if got := out.String(); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%d GB: %q", size, got)
		}
	}
}

type output struct{ *bytes.Buffer }

func (output) Spin(string) {}
func (output) StopSpin()   {}

// Whatever is asked for as accelerators, a machine that a plan takes for it is one on
// which exec runs it: nothing is rented to be refused then.
func TestWhatAPlanTakesExecTakes(t *testing.T) {
	var offers []cloud.Offer
	for i, a := range catalog.Accelerators() {
		for _, n := range []float64{1, 4, 8} {
			offers = append(offers, cloud.Offer{
				Place: cloud.Place{Cloud: "aws", Region: "east"}, InstanceType: fmt.Sprintf("%s-%v", a.Name, n), CPUs: 8, MemoryGiB: 32,
				Accelerators: map[string]float64{a.Name: n}, HourlyPrice: float64(i+1) * n,
			})
		}
	}
	source := optimizer.OffersSource("aws", "AWS", offers, nil)
	asked := []string{"24GB", "24GB+", "40GB+", "40GB", "80GB+", "141GB+", "nvidia:16GB+", "nvidia:40GB", "amd:100GB+", "a100", "A100-80", "h100", "V100", "l4", "tpu-v5p", "gaudi"}
	for _, a := range catalog.Accelerators() {
		asked = append(asked, a.Name, strings.ToLower(a.Name))
	}
	taken := 0
	for _, name := range asked {
		for _, n := range []float64{0.5, 1, 2, 8} {
			tk := &task.Task{NumNodes: 1, Resources: []task.Resources{{Accelerators: []task.Accelerator{{Name: name, Count: n}}}}}
			plan, err := optimizer.Optimize(optimizer.Problem{Dag: &task.Dag{Tasks: []*task.Task{tk}}, Sources: []optimizer.Source{source}})
			if err != nil {
				continue // nothing is rented
			}
			for _, c := range plan.Tasks[0].Candidates {
				taken++
				if !takesItsTask(c) {
					continue // it is left out before anything is rented
				}
				if err := fits(&state.Cluster{Name: "c", NumNodes: 1, Offer: c.Offer}, tk, true); err != nil {
					t.Errorf("%s:%v would be rented as %v and then refused: %v", name, n, c.Offer.Accelerators, err)
				}
			}
			if best := plan.Tasks[0].Chosen; !takesItsTask(best) {
				t.Errorf("%s:%v: the plan shows %v, which is not rented", name, n, best.Offer.Accelerators)
			}
		}
	}
	if taken < 200 {
		t.Errorf("only %d candidates were looked at", taken)
	}
}
