package optimizer

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// machines of two clouds, in zones; the cheapest is in alpha's first region.
func machines() []Source {
	at := func(cloudName, region, zone, instance string, price float64, gpus float64, spot bool) cloud.Offer {
		o := cloud.Offer{Place: cloud.Place{Cloud: cloudName, Region: region, Zone: zone}, InstanceType: instance, CPUs: 8, MemoryGiB: 32, HourlyPrice: price, Spot: spot}
		if gpus > 0 {
			o.Accelerators = map[string]float64{"T4": gpus}
		}
		return o
	}
	return []Source{
		OffersSource("aws", "AWS", []cloud.Offer{
			at("aws", "east", "east-1", "m", 1, 0, false), at("aws", "east", "east-2", "m", 1, 0, false), at("aws", "west", "west-1", "m", 2, 0, false),
			at("aws", "east", "east-1", "g1", 3, 1, false), at("aws", "east", "east-1", "g2", 6, 2, false), at("aws", "east", "east-1", "g1", 1, 1, true),
		}, nil),
		OffersSource("gcp", "GCP", []cloud.Offer{at("gcp", "east", "east-a", "n", 4, 0, false), at("gcp", "east", "east-a", "n-t4", 5, 1, false)}, nil),
	}
}

func planned(t *testing.T, text string) (*Plan, Problem, error) {
	t.Helper()
	dag, err := task.Parse("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sent, err := dag.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if dag, err = task.ParseSent("t", sent); err != nil { // as it arrives at the server
		t.Fatal(err)
	}
	p := Problem{Dag: dag, Sources: machines()}
	plan, err := Optimize(p)
	return plan, p, err
}

func TestBlockedResourcesAreNeverPlanned(t *testing.T) {
	for blocked, want := range map[string]string{
		"[]":                         "aws/east/east-1 aws/east/east-2 aws/west/west-1 gcp/east/east-a",
		"[{infra: aws}]":             "gcp/east/east-a",
		"[{infra: aws/EAST}]":        "aws/west/west-1 gcp/east/east-a",
		"[{infra: '*/east'}]":        "aws/west/west-1",
		"[{infra: aws/east/east-1}]": "aws/east/east-2 aws/west/west-1 gcp/east/east-a",
		"[{instance_type: m}, {infra: gcp, use_spot: true}]": "gcp/east/east-a",
		"[{infra: aws, use_spot: false}]":                    "gcp/east/east-a",
		"[{accelerators: T4}]":                               "aws/east/east-1 aws/east/east-2 aws/west/west-1 gcp/east/east-a",
	} {
		plan, _, err := planned(t, "resources: {cpus: 8}\nblocked_resources: "+blocked+"\nrun: x\n")
		if err != nil {
			t.Fatalf("%s: %v", blocked, err)
		}
		var got []string
		for _, c := range plan.Tasks[0].Candidates {
			if o := c.Offer; o.Accelerators == nil {
				got = append(got, o.Cloud+"/"+o.Region+"/"+o.Zone)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", blocked, got)
		}
	}
	for blocked, want := range map[string]string{
		"[{accelerators: T4:2}]":                  "g1 n-t4",
		"[{accelerators: t4:1}]":                  "",
		"[{accelerators: T4, infra: aws}]":        "n-t4",
		"[{accelerators: T4:1, infra: aws/east}]": "n-t4",
		"[{accelerators: T4, use_spot: true}]":    "g1 n-t4",
	} {
		plan, _, err := planned(t, "resources: {accelerators: T4:1}\nblocked_resources: "+blocked+"\nrun: x\n")
		var none *NoFeasibleError
		if want == "" && errors.As(err, &none) {
			if !slices.ContainsFunc(none.Clouds, func(x Exclusion) bool { return strings.Contains(x.Reason, "blocked_resources") }) {
				t.Errorf("%s: %v", blocked, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", blocked, err)
		}
		var got []string
		for _, c := range plan.Tasks[0].Candidates {
			got = append(got, c.Offer.InstanceType)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", blocked, got)
		}
	}
}

func TestThePlanShowsWhatIsBlocked(t *testing.T) {
	plan, p, err := planned(t, "resources: {cpus: 8}\nblocked_resources: [{infra: aws/east}, {accelerators: T4, use_spot: true}]\nrun: x\n")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	plan.Table(&out, false)
	if !strings.Contains(out.String(), "Excluded by blocked_resources: aws/east, T4 spot\n") {
		t.Errorf("%s", out.String())
	}
	why := map[string]Why{}
	for _, a := range Explain(p, plan, 0) {
		if a.Offer != nil && a.Offer.Accelerators == nil {
			why[a.Offer.Zone] = a.Why
		}
	}
	if why["east-1"] != Blocked || why["east-2"] != Blocked || why["west-1"] != Chosen || why["east-a"] != Dearer {
		t.Errorf("%v", why)
	}
}

func TestEstimatesDecideByTimeAndCost(t *testing.T) {
	const text = `
resources:
  any_of:
  - {infra: aws, instance_type: m, estimated_runtime: 240}
  - {infra: gcp, instance_type: n}
estimated_runtime: 30
run: x
`
	for target, want := range map[Target]struct{ place, row, said string }{
		Cost: {"gcp", " GCP (east-a)   n          8       32        -      2.00       0.50           ✔     ", "Cost decided, then time. For the fastest: --optimize-target time\n"},
		Time: {"gcp", " AWS (east-1)   m          8       32        -      4.00       4.00                 ", "Time decided, then cost.\n"},
	} {
		_, p, err := planned(t, text)
		if err != nil {
			t.Fatal(err)
		}
		p.Minimize = target
		plan, err := Optimize(p)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		plan.Table(&out, false)
		if plan.Tasks[0].Chosen.Offer.Cloud != want.place || !strings.Contains(out.String(), want.row) || !strings.HasSuffix(out.String(), want.said) {
			t.Errorf("by %s:\n%s", target, out.String())
		}
	}
	_, p, _ := planned(t, "resources: {cpus: 8}\nrun: x\n")
	p.Minimize = Time
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	plan.Table(&out, false)
	if !strings.HasSuffix(out.String(), "Without estimated_runtime every candidate takes as long, so cost decided.\n") {
		t.Errorf("%s", out.String())
	}
}
