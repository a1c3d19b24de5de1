package task

import (
	"reflect"
	"strings"
	"testing"
)

func TestBlockedResourcesAndRuntimeTravel(t *testing.T) {
	d, err := Parse("task.yaml", []byte(`run: hostname
estimated_runtime: 90
blocked_resources:
- infra: AWS/us-east-1
- {cloud: gcp, zone: us-central1-a, use_spot: true}
- accelerators: A100
- {instance_type: p4d.24xlarge, accelerators: {A100: 8}, use_spot: false}
resources:
  any_of:
  - {accelerators: A100, estimated_runtime: 45.5}
  - {accelerators: T4}
`))
	if err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	want := []BlockedResources{
		{Cloud: "aws", Region: "us-east-1"},
		{Cloud: "gcp", Zone: "us-central1-a", UseSpot: &yes},
		{Accelerator: "A100"},
		{InstanceType: "p4d.24xlarge", Accelerator: "A100", AcceleratorCount: 8, UseSpot: &no},
	}
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	sent, err := Parse("sent", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, d := range []*Dag{d, sent} {
		one := d.Tasks[0]
		if !reflect.DeepEqual(one.BlockedResources, want) {
			t.Errorf("blocked: %v", one.BlockedResources)
		}
		if one.EstimatedRuntime != 90 || one.Resources[0].EstimatedRuntime != 45.5 || one.Resources[1].EstimatedRuntime != 0 {
			t.Errorf("estimates: %v, %v, %v", one.EstimatedRuntime, one.Resources[0].EstimatedRuntime, one.Resources[1].EstimatedRuntime)
		}
	}
	if got := want[3].String(); got != "p4d.24xlarge, A100:8, not spot" {
		t.Error(got)
	}
}

func TestBlockedResourcesThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"blocked_resources: [{}]":                              "would block everything",
		"blocked_resources: [{infra: '*'}]":                    "would block everything",
		"blocked_resources: [{infra: aws, region: us-east-1}]": "second time",
		"blocked_resources: [{cloud: awss}]":                   "awss",
		"blocked_resources: [{cpus: 8}]":                       "cpus",
		"blocked_resources: [{accelerators: 80GB+}]":           "by memory",
		"blocked_resources: [{accelerators: {'A100:4': 8}}]":   "twice",
		"blocked_resources: {cloud: aws}":                      "list",
		"estimated_runtime: 0":                                 "more than 0",
		"resources: {estimated_runtime: -1}":                   "more than 0",
		"estimated_runtime: soon":                              "number",
	} {
		if _, err := Parse("task.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
