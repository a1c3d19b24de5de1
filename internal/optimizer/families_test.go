package optimizer

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/task"
)

// sizes are price lists in which the usual families end early.
func sizes(t testing.TB) []Source {
	t.Helper()
	var out []Source
	for name, rows := range map[string]string{
		"aws": "m6i.large,2,8,.096\nm6i.xlarge,4,16,.192\nm6i.2xlarge,8,32,.384\nr6i.24xlarge,96,768,6\nx1e.32xlarge,128,3904,26\nx1.32xlarge,128,1952,13\n" +
			"x2gd.16xlarge,64,1024,5\nm6g.medium,1,4,.04\nmac1.metal,12,32,1.08\nc5.18xlarge,72,144,3\n",
		"gcp":   "n2-standard-8,8,32,.39\nn2-highmem-96,96,768,6\nm1-ultramem-160,160,3844,25\nt2a-standard-1,1,4,.04\na2-highgpu-1g,12,85,.8\n",
		"azure": "Standard_D8s_v5,8,32,.38\nStandard_E96s_v5,96,672,6\nStandard_M416ms_v2,416,11400,100\nStandard_D64ps_v5,64,208,2\n",
		"oci":   "VM.Standard.E4.Flex$_8_32,8,32,.2\nVM.DenseIO2.24,24,320,3\nVM.Standard.A1.Flex$_2_12,2,12,.03\n",
		"ibm":   "bx2-8x32,8,32,.4\nmx2-128x1024,128,1024,9\n",
	} {
		var b strings.Builder
		b.WriteString("InstanceType,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone,AcceleratorName,AcceleratorCount,GpuInfo\n")
		for row := range strings.Lines(rows) {
			fmt.Fprintf(&b, "%s,,r1,r1-a,,,\n", strings.TrimSpace(row))
		}
		table, err := catalog.Load(name, []byte(b.String()), catalog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, CatalogSource(table, nil))
	}
	return out
}

func TestAllFamiliesAreSearchedTheUsualOnesFirst(t *testing.T) {
	for _, tt := range []struct{ cloud, cpus, memory, want string }{
		{"aws", "", "", "m6i.2xlarge"},
		{"aws", "", "700+", "r6i.24xlarge"}, // not the cheaper x2gd
		{"aws", "", "1500+", "x1.32xlarge"},
		{"aws", "", "2000+", "x1e.32xlarge"},
		{"aws", "72", "", ""}, // 4 GB for each vCPU, as for all
		{"aws", "72", "2x", "c5.18xlarge"},
		{"aws", "1", "", "m6g.medium"}, // ARM where there is no other
		{"aws", "64", "", "x2gd.16xlarge"},
		{"aws", "12", "", ""}, // a Mac needs a host of its own
		{"gcp", "", "2000+", "m1-ultramem-160"},
		{"gcp", "12", "", ""}, // a2 is the host of a GPU
		{"gcp", "1", "", "t2a-standard-1"},
		{"azure", "", "2000+", "Standard_M416ms_v2"},
		{"oci", "", "200+", "VM.DenseIO2.24"},
		{"ibm", "", "500+", "mx2-128x1024"},
	} {
		r := task.Resources{Cloud: tt.cloud, CPUs: tt.cpus, Memory: tt.memory}
		plan, err := Optimize(Problem{Dag: one(r), Sources: sizes(t)})
		got := ""
		if err == nil {
			got = plan.Tasks[0].Chosen.Offer.InstanceType
		}
		if got != tt.want {
			t.Errorf("%s, cpus %q, memory %q: %q, want %q (%v)", tt.cloud, tt.cpus, tt.memory, got, tt.want, err)
		}
	}
	// A cloud with a usual machine is preferred to a cheaper unusual one elsewhere.
	plan, err := Optimize(Problem{Dag: one(task.Resources{CPUs: "96+", Memory: "700+"}), Sources: sizes(t)})
	if err != nil || plan.Tasks[0].Chosen.Offer.MemoryGiB != 768 {
		t.Errorf("96+ vCPUs, 700+ GB: %+v, %v", plan, err)
	}
}

// What a refusal says of sizes is true of the price list: the nearest is the
// nearest, and asking for what would fit gives it.
func TestNumbersInRefusalsAreTrue(t *testing.T) {
	sources := sizes(t)
	refused := func(t interface{ Fatalf(string, ...any) }, cpus, memory, cloud string) string {
		r := task.Resources{CPUs: cpus, Memory: memory, Cloud: cloud}
		_, err := Optimize(Problem{Dag: one(r), Sources: sources})
		none, ok := errors.AsType[*NoFeasibleError](err)
		if !ok {
			return ""
		}
		for _, x := range none.Clouds {
			if x.Nearest == nil {
				continue
			}
			asked := r
			asked.Cloud = x.Cloud
			field, value, _ := strings.Cut(x.Change, ": ")
			switch field {
			case "cpus":
				asked.CPUs = value
			case "memory":
				asked.Memory = value
			default:
				continue
			}
			plan, err := Optimize(Problem{Dag: one(asked), Sources: sources})
			if err != nil {
				t.Fatalf("cpus %q, memory %q: %q was said to fit: %v", cpus, memory, x.Change, err)
			}
			found := false
			for i := range plan.Tasks[0].Candidates {
				found = found || plan.Tasks[0].Candidates[i].Offer.InstanceType == x.Nearest.InstanceType
			}
			if !found {
				t.Fatalf("cpus %q, memory %q: %q does not give %s", cpus, memory, x.Change, x.Nearest.InstanceType)
			}
		}
		return err.Error()
	}
	for _, tt := range []struct{ cpus, memory, cloud, says string }{
		{"3", "", "aws", "the nearest has 4"},
		{"3", "4", "gcp", "the nearest has 1"},
		{"", "5000+", "aws", "the nearest has 3904"},
		{"", "12000+", "azure", "the nearest has 11400"},
		{"500+", "", "azure", "the nearest has 416"},
	} {
		if got := refused(t, tt.cpus, tt.memory, tt.cloud); !strings.Contains(got, tt.says) {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	nearest := regexp.MustCompile(`no such machine has ([0-9]+)\+ GB of memory; the nearest has ([0-9]+)`)
	most := map[string]float64{"aws": 3904, "gcp": 3844, "azure": 11400, "oci": 320, "ibm": 1024}
	rapid.Check(t, func(t *rapid.T) {
		cloud := rapid.SampledFrom([]string{"aws", "gcp", "azure", "oci", "ibm"}).Draw(t, "cloud")
		text := func(name string) string {
			return rapid.Custom(func(t *rapid.T) string {
				return rapid.SampledFrom([]string{"", "%d", "%d+"}).Draw(t, "form")
			}).Draw(t, name)
		}
		fill := func(form string, most int) string {
			if form == "" {
				return ""
			}
			return fmt.Sprintf(form, rapid.IntRange(1, most).Draw(t, "n"))
		}
		cpus, memory := fill(text("cpus"), 500), fill(text("memory"), 15000)
		said := refused(t, cpus, memory, cloud)
		if m := nearest.FindStringSubmatch(said); m != nil && cpus == "" {
			asked, _ := strconv.ParseFloat(m[1], 64)
			near, _ := strconv.ParseFloat(m[2], 64)
			if near != most[cloud] || math.Max(asked, near) == near {
				t.Fatalf("%s: the most there is are %v GB", said, most[cloud])
			}
		}
	})
}
