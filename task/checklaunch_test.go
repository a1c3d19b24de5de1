package task

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A launch sends the server the YAML of what it read: what "sky task check" accepts
// is accepted there too, and means the same.
func TestWhatCheckAcceptsLaunchAccepts(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"A100", "V100-32GB", "nvidia", "40GB+", "80GB", "8", "0.5", "08", "1", ":", ":", " ", "  ", "+", "x", "\t", "4x", "16gb",
		"aws", "us-east-1", "/", "*", "ssh", "k8s", "docker", "nvme", "-", "9000", "10m", "h", "ubuntu", "."})
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pieces, 1, 6).Draw(t, "pieces"), "") })
	fields := map[string][]string{
		"accelerators": {"%q", "[%q]", "[%q, %[1]q]", "{%q: 2}", "{%q: }"},
		"gpus":         {"%q", "{%q: 0.5}", "[{%q: 2}, V100]"},
		"cpus":         {"%q"}, "memory": {"%q"}, "infra": {"%q"}, "disk_size": {"%q"}, "local_disk": {"%q"}, "ports": {"%q", "[%q]"},
		"image_id": {"%q"}, "autostop": {"%q"}, "region": {"%q", "[%q, x]"}, "instance_type": {"%q"}, "job_recovery": {"%q"},
	}
	names := []string{"accelerators", "accelerators", "gpus"} // most often
	for name := range fields {
		names = append(names, name)
	}
	check := func(t interface{ Fatalf(string, ...any) }, source string) {
		dag, err := Parse("task.yaml", []byte(source))
		if err != nil || dag.Check(CheckOptions{}) != nil {
			return
		}
		sent, err := dag.YAML()
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		arrived, err := Parse("task", sent)
		if err != nil {
			t.Fatalf("check accepts\n%slaunch refuses what it sends:\n%s%v", source, sent, err)
		}
		if a, b := dag.Tasks[0].Resources, arrived.Tasks[0].Resources; !reflect.DeepEqual(a, b) {
			t.Fatalf("check reads\n%sas %+v, launch as %+v", source, a, b)
		}
	}
	for _, s := range []string{"A100 : 8", "A100 :8", "A100: 8", " A100:8 ", "nvidia : 40GB+ : 1", "nvidia: 40GB+", "A100 ", "V 100", "40GB +"} {
		for _, form := range fields["accelerators"] {
			check(t, fmt.Sprintf("resources:\n  accelerators: "+form+"\nrun: x\n", s))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom(names).Draw(t, "field")
		form := rapid.SampledFrom(fields[field]).Draw(t, "form")
		check(t, fmt.Sprintf("resources:\n  %s: "+form+"\nrun: x\n", field, text.Draw(t, "text")))
	})
}

func TestSpacesInAccelerators(t *testing.T) {
	for text, want := range map[string]Accelerator{
		"A100 : 8": {"A100", 8}, " A100 ": {"A100", 1}, "A100 :8": {"A100", 8}, "nvidia : 40GB+ : 2": {"nvidia:40GB+", 2}, "nvidia: 40GB": {"nvidia:40GB", 1},
	} {
		if got, err := ParseAccelerator(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", ":", "A100:", "A100: ", ": 8", "a:b", "nvidia:40GB:", "A100:8:8", "A100:-1"} {
		if got, err := ParseAccelerator(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
