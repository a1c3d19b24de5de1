package optimizer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

func offer(cloudName, region, zone, instance string, cpus, mem float64, acc map[string]float64, price float64) cloud.Offer {
	return cloud.Offer{Place: cloud.Place{Cloud: cloudName, Region: region, Zone: zone}, InstanceType: instance, CPUs: cpus, MemoryGiB: mem, Accelerators: acc, HourlyPrice: price}
}

func spot(o cloud.Offer, price float64) cloud.Offer { o.Spot, o.HourlyPrice = true, price; return o }

func a100(n float64) map[string]float64 { return map[string]float64{"A100": n} }

// market is a small world: two clouds with zones, one without, and this machine.
func market() []Source {
	p4d := offer("aws", "us-east-1", "", "p4d.24xlarge", 96, 1152, a100(8), 32.7726)
	return []Source{
		OffersSource("aws", "AWS", []cloud.Offer{
			offer("aws", "us-east-1", "", "m6i.2xlarge", 8, 32, nil, 0.384),
			offer("aws", "eu-west-1", "", "m6i.2xlarge", 8, 32, nil, 0.428),
			p4d, spot(p4d, 3.5),
		}, nil),
		OffersSource("gcp", "GCP", []cloud.Offer{
			offer("gcp", "us-central1", "us-central1-a", "n2-standard-8", 8, 32, nil, 0.388),
			offer("gcp", "us-central1", "us-central1-a", "a2-highgpu-8g", 96, 680, a100(8), 29.387),
			offer("gcp", "us-central1", "us-central1-b", "a2-highgpu-4g", 48, 340, a100(4), 14.6935),
		}, nil),
		OffersSource("lambda", "Lambda", []cloud.Offer{
			offer("lambda", "us-east-1", "", "gpu_8x_a100", 124, 1800, a100(8), 10.32),
		}, map[cloud.Feature]string{cloud.FeatureSpot: "Lambda has no spot machines", cloud.FeatureStop: "Lambda cannot stop machines"}),
		OffersSource("local", "Local", []cloud.Offer{
			offer("local", "", "", "this-machine", 4, 16, nil, 0),
		}, nil),
	}
}

func one(r ...task.Resources) *task.Dag {
	return &task.Dag{Tasks: []*task.Task{{Name: "t", NumNodes: 1, Resources: r}}}
}

func want(accelerator string, n float64) task.Resources {
	return task.Resources{Accelerators: []task.Accelerator{{Name: accelerator, Count: n}}}
}

func yes() *bool { b := true; return &b }

func TestOptimizeOneTask(t *testing.T) {
	gpu := want("a100", 8)
	onAWS, spotGPU := gpu, gpu
	onAWS.Cloud, spotGPU.UseSpot = "aws", yes()
	tests := []struct {
		name    string
		task    *task.Dag
		blocked []task.BlockedResources
		want    string
	}{
		{"cheapest of all clouds", one(gpu), nil, "lambda/us-east-1 gpu_8x_a100"},
		{"a named cloud", one(onAWS), nil, "aws/us-east-1 p4d.24xlarge"},
		{"spot", one(spotGPU), nil, "aws/us-east-1 p4d.24xlarge[spot]"},
		{"this machine takes part only when named", one(task.Resources{}), nil, "aws/us-east-1 m6i.2xlarge"},
		{"this machine by name, smaller than asked for elsewhere", one(task.Resources{Cloud: "local"}), nil, "local this-machine"},
		{"part of this machine", one(task.Resources{Cloud: "local", CPUs: "2"}), nil, "local this-machine"},
		{"a whole cloud ruled out", one(gpu), []task.BlockedResources{{Cloud: "lambda"}}, "gcp/us-central1/us-central1-a a2-highgpu-8g"},
		{"a blocked cloud is blocked for spot too", one(spotGPU, gpu), []task.BlockedResources{{Cloud: "aws"}, {Cloud: "lambda"}}, "gcp/us-central1/us-central1-a a2-highgpu-8g"},
		{"a block of spot leaves on-demand", one(spotGPU, onAWS), []task.BlockedResources{{Cloud: "aws", UseSpot: yes()}}, "aws/us-east-1 p4d.24xlarge"},
		{"a list of regions", one(task.Resources{Regions: []string{"eu-west-1", "us-central1"}}), nil, "gcp/us-central1/us-central1-a n2-standard-8"},
		{"any region writes its name in any case", one(task.Resources{Region: "EU-West-1"}), nil, "aws/eu-west-1 m6i.2xlarge"},
		{"any_of takes the cheapest", one(onAWS, gpu), nil, "lambda/us-east-1 gpu_8x_a100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := Optimize(Problem{Dag: blocking(tt.task, tt.blocked...), Sources: market()})
			if err != nil {
				t.Fatal(err)
			}
			if got := show(&plan.Tasks[0].Chosen); got != tt.want {
				t.Errorf("chose %s, want %s", got, tt.want)
			}
		})
	}
}

// blocking is a Dag of one task that must not use some resources.
func blocking(dag *task.Dag, blocked ...task.BlockedResources) *task.Dag {
	dag.Tasks[0].BlockedResources = blocked
	return dag
}

func show(c *Candidate) string {
	s := c.Offer.Place.String() + " " + c.Offer.InstanceType
	if c.Offer.Spot {
		s += "[spot]"
	}
	return s
}

func TestOrdered(t *testing.T) {
	aws := want("A100", 8)
	aws.Cloud = "aws"
	dag := one(aws, want("A100", 8))
	dag.Tasks[0].Preference = task.Ordered
	plan, err := Optimize(Problem{Dag: dag, Sources: market()})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(&plan.Tasks[0].Chosen); got != "aws/us-east-1 p4d.24xlarge" {
		t.Errorf("chose %s, want the first entry although it is dearer", got)
	}
	plan, err = Optimize(Problem{Dag: blocking(dag, task.BlockedResources{Cloud: "aws"}), Sources: market()})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(&plan.Tasks[0].Chosen); got != "lambda/us-east-1 gpu_8x_a100" {
		t.Errorf("chose %s, want the second entry when the first is ruled out", got)
	}
}

func TestZoneBlockSparesTheRegion(t *testing.T) {
	dag := one(task.Resources{Cloud: "aws"})
	block := task.BlockedResources{Cloud: "aws", Region: "us-east-1", Zone: "use1-az1"}
	plan, err := Optimize(Problem{Dag: blocking(dag, block), Sources: market()})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Tasks[0].Chosen.Offer.Region; got != "us-east-1" {
		t.Errorf("a block of one zone moved the task to %s", got)
	}
}

func TestNothingFits(t *testing.T) {
	tests := []struct {
		name    string
		task    *task.Dag
		blocked []task.BlockedResources
		want    map[string]Constraint
		text    string
	}{
		{"count", one(want("A100", 3)), nil, map[string]Constraint{"aws": AccelCount, "gcp": AccelCount, "lambda": AccelCount}, "A100:4"},
		{"name", one(want("H100", 8)), nil, map[string]Constraint{"aws": AccelName, "gcp": AccelName, "lambda": AccelName}, "does not offer H100"},
		{"cpus", one(task.Resources{CPUs: "500+"}), nil, map[string]Constraint{"aws": CPUs}, "cpus: 96"},
		{"feature", one(task.Resources{Cloud: "lambda", UseSpot: yes()}), nil, map[string]Constraint{"lambda": Feature}, "no spot machines"},
		{"blocked", one(want("A100", 8)), []task.BlockedResources{{}}, map[string]Constraint{"aws": RuledOut, "gcp": RuledOut, "lambda": RuledOut}, "excluded by blocked_resources"},
		{"size with a number of GPUs", one(task.Resources{CPUs: "64+", Accelerators: []task.Accelerator{{Name: "A100", Count: 4}}}), nil, map[string]Constraint{"gcp": CPUs, "aws": AccelCount}, "cpus: 48"},
		{"memory of a GPU", one(want("500GB+", 1)), nil, map[string]Constraint{"aws": AccelName}, "no accelerator with 500GB+"},
		{"price", one(task.Resources{Cloud: "gcp", MaxHourlyCost: 0.1}), nil, map[string]Constraint{"gcp": MaxHourlyCost}, "max_hourly_cost: 0.39"},
		{"not enabled", one(task.Resources{Cloud: "azure"}), nil, map[string]Constraint{"azure": NotEnabled}, "sky check azure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Optimize(Problem{Dag: blocking(tt.task, tt.blocked...), Sources: market()})
			none, ok := errors.AsType[*NoFeasibleError](err)
			if !ok {
				t.Fatalf("got %v, want a NoFeasibleError", err)
			}
			for _, x := range none.Clouds {
				if c, ok := tt.want[x.Cloud]; ok && x.Constraint != c {
					t.Errorf("%s excluded by %s, want %s", x.Cloud, x.Constraint, c)
				}
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error does not say %q:\n%v", tt.text, err)
			}
			if slices.Contains(none.Similar, none.Requests[0]) {
				t.Errorf("what was asked for is said to be similar to it:\n%v", err)
			}
		})
	}
}

// Of the accelerators with enough memory the nearest is named, and the request as it was
// made, not the last accelerator that was tried.
func TestWhyNoAcceleratorOfSomeMemoryIsOffered(t *testing.T) {
	sources := []Source{OffersSource("aws", "AWS", []cloud.Offer{
		offer("aws", "us-east-1", "", "p4d.24xlarge", 96, 1152, a100(8), 32.77),
		offer("aws", "us-east-1", "", "p5.48xlarge", 192, 2048, map[string]float64{"H100": 8}, 98.32),
		offer("aws", "us-east-1", "", "p5.24xlarge", 96, 1024, map[string]float64{"H100": 4}, 49.16),
	}, nil)}
	for asked, text := range map[string]string{
		"40GB+:1":  "AWS  40GB+:1 is not offered; the nearest is H100:4\n",
		"40GB+:16": "AWS  40GB+:16 is not offered; the nearest is A100:8\n",
		"80GB+:1":  "AWS  80GB+:1 is not offered; the nearest is H100:4\n",
	} {
		a, err := task.ParseAccelerator(asked)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Optimize(Problem{Dag: one(task.Resources{Accelerators: []task.Accelerator{a}}), Sources: sources})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", asked, err, text)
		}
	}
}

// A price list without a machine of the default size is not said to lack an instance type.
func TestNoMachineOfTheDefaultSize(t *testing.T) {
	_, err := Optimize(Problem{Dag: one(task.Resources{}), Sources: []Source{onlySmall{}}})
	if err == nil || !strings.Contains(err.Error(), "no such machine has the default size; ask for one, such as 2 vCPUs and 8 GB of memory") {
		t.Error(err)
	}
}

// onlySmall is a source with one small machine and a larger default size.
type onlySmall struct{ Source }

func (onlySmall) Name() string                    { return "aws" }
func (onlySmall) DisplayName() string             { return "AWS" }
func (onlySmall) Lacks() map[cloud.Feature]string { return nil }
func (onlySmall) Names(catalog.NameKind) []string { return nil }
func (onlySmall) Find(q catalog.Query) []cloud.Offer {
	if !q.AnyCPUs && q.CPUs.Any() {
		return nil
	}
	return []cloud.Offer{offer("aws", "us-east-1", "", "m6i.large", 2, 8, nil, 0.096)}
}

func TestInvalid(t *testing.T) {
	tests := []struct {
		name, field, close string
		r                  task.Resources
	}{
		{"misspelt region", "region", "us-east-1", task.Resources{Cloud: "aws", Region: "us-esat-1"}},
		{"misspelt instance type", "instance_type", "m6i.2xlarge", task.Resources{InstanceType: "m6i.2xlrge"}},
		{"instance type too small", "cpus", "", task.Resources{InstanceType: "m6i.2xlarge", CPUs: "16+"}},
		{"image without a cloud", "image_id", "", task.Resources{ImageID: map[string]string{"": "ami-1"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Optimize(Problem{Dag: one(tt.r), Sources: market()})
			bad, ok := errors.AsType[*InvalidError](err)
			if !ok {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if bad.Field != tt.field {
				t.Errorf("field %s, want %s", bad.Field, tt.field)
			}
			if tt.close != "" && (len(bad.Close) == 0 || bad.Close[0] != tt.close) {
				t.Errorf("suggests %v, want %s", bad.Close, tt.close)
			}
		})
	}
}

// A pool of own machines has in the table the name that users give it.
func TestPoolsInTheTable(t *testing.T) {
	plan, err := Optimize(Problem{Dag: one(task.Resources{}), Sources: []Source{OffersSource("ssh", "SSH", []cloud.Offer{offer("ssh", "ssh-box", "", "share-2CPU--23GB", 2, 23, nil, 0)}, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	plan.Table(&b, true, 0)
	if !strings.Contains(b.String(), " SSH (box) ") {
		t.Error(b.String())
	}
}

// The table as the API's clients have always seen it, byte for byte.
func TestTable(t *testing.T) {
	plan, err := Optimize(Problem{Dag: one(want("A100", 8)), Sources: market()})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	plan.Table(&b, true, 0)
	rule := strings.Repeat("-", 86) + "\n"
	want := "Considered resources (1 node):\n" + rule +
		" INFRA                 INSTANCE        vCPUs   Mem(GB)   GPUS     COST ($)   CHOSEN   \n" + rule +
		" Lambda (us-east-1)    gpu_8x_a100     124     1800      A100:8   10.32      \x1b[32m   ✔\x1b[0m     \n" +
		" GCP (us-central1-a)   a2-highgpu-8g   96      680       A100:8   29.39               \n" +
		" AWS (us-east-1)       p4d.24xlarge    96      1152      A100:8   32.77               \n" + rule
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
