package similar

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	names := []string{"launch", "logs", "start", "status", "stop", "queue", "my-cluster", "dev", "train-1", "train-2", "train-3", "train-4"}
	for word, want := range map[string]string{
		"lanch": "launch", "satus": "status", "qeueu": "queue", "stpo": "stop",
		"stat": "status start", // a beginning comes before a slip
		"zzzz": "", "": "", "x": "",
		"dve": "dev", "DEV": "dev", "my_cluster": "my-cluster", "MyCluster": "my-cluster",
		"train":                       "train-1 train-2 train-3", // no more than three
		strings.Repeat("launch", 100): "",
	} {
		if got := strings.Join(Names(word, names), " "); got != want {
			t.Errorf("%.20q: got %q, want %q", word, got, want)
		}
	}
}

func TestPartsOfNames(t *testing.T) {
	for word, want := range map[string]string{
		"job": "jobs jobs_and_ssh", "options": "run_options", "a": "", "": "", "b1": "a1", "run": "run_options",
	} {
		if got := strings.Join(Names(word, []string{"jobs_and_ssh", "jobs", "run_options", "b", "a1"}), " "); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestClosest(t *testing.T) {
	names := []string{"us-east-1", "us-east-2", "us-west-2", "eu-west-1", "A100", "A100", "A100-80GB"}
	for word, want := range map[string]string{
		"us-eats-1": "us-east-1 us-east-2", // a swap counts once
		"a100":      "A100",                // in any case, and each name once
		"US-WEST-1": "us-west-2 eu-west-1",
		"zzz":       "", "": "",
		strings.Repeat("us-east-1", 10): "",
	} {
		if got := strings.Join(Closest(word, names, 2), " "); got != want {
			t.Errorf("%.20q: got %q, want %q", word, got, want)
		}
	}
	if got := Closest("", []string{""}, 1); got != nil {
		t.Errorf("nothing is like nothing: %q", got)
	}
}
