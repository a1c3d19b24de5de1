package jobs

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

func TestAClusterIsNamedForItsTaskAndJob(t *testing.T) {
	long := strings.Repeat("a", 24)
	for name, want := range map[string]string{
		"train":              "train-7",
		"az-AZ_09.x":         "az-AZ_09.x-7",
		"a`b{c@d[e/f:g":      "a-b-c-d-e-f-g-7", // the neighbours of what is allowed
		"mein job/ä":         "mein-job-7",
		"-_.0123456789train": "train-7",
		"train-_.":           "train-7",
		"train9":             "train9-7",
		long + "bc":          long + "b-7",
		long + "-c":          long + "-7",
		"":                   "job-7",
		"2026":               "job-7",
	} {
		if got := clusterName(name, 7); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestATaskFindsItsJobInItsEnvironment(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 5, 123456000, time.FixedZone("CET", 3600))
	one := &state.ManagedJob{ID: 7, Name: "train", SubmittedAt: at, Tasks: []*state.ManagedTask{{Name: "train"}}}
	const id = "sky-managed-2026-03-01-12-00-05-123456_"
	for what, c := range map[string]struct {
		job  *state.ManagedJob
		want map[string]string
	}{
		"a job of one task": {one, map[string]string{
			"SKYPILOT_TASK_IDS": id + "train_7-0", "SKYPILOT_MANAGED_JOB_ID": "7", "SKYPILOT_JOB_RANK": "0",
		}},
		"a pipeline": {
			&state.ManagedJob{ID: 7, Name: "pipe", SubmittedAt: at, Tasks: []*state.ManagedTask{{Name: "a"}, {Name: "b", Index: 1}}},
			map[string]string{
				"SKYPILOT_TASK_IDS": id + "pipe_a_7-0\n" + id + "pipe_b_7-1", "SKYPILOT_MANAGED_JOB_ID": "7", "SKYPILOT_JOB_RANK": "0",
			},
		},
		"one of an array": {
			&state.ManagedJob{ID: 7, Name: "train", SubmittedAt: at, Rank: 2, Size: 1, Tasks: one.Tasks},
			map[string]string{
				"SKYPILOT_TASK_IDS": id + "train_7-0", "SKYPILOT_MANAGED_JOB_ID": "7", "SKYPILOT_JOB_RANK": "2", "SKYPILOT_NUM_JOBS": "1",
			},
		},
	} {
		if got := variables(c.job); !maps.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func TestWhatATaskAsksForIsShown(t *testing.T) {
	for text, want := range map[string]string{
		"run: x\n":                        "1x[CPU:1+]",
		"num_nodes: 3\nrun: x\n":          "3x[CPU:1+]",
		"resources: {cpus: 8+}\nrun: x\n": "1x[CPU:8+]",
		"resources: {accelerators: 'A100:8', use_spot: true}\nnum_nodes: 2\nrun: x\n":                              "2x[A100:8][Spot]",
		"resources: {accelerators: 'A100:0.5', use_spot: false}\nrun: x\n":                                         "1x[A100:0.5]",
		"resources:\n  any_of:\n  - {cpus: 2}\n  - {cpus: 2, infra: aws}\n  - {cpus: 4, use_spot: true}\nrun: x\n": "1x[CPU:2]|[CPU:4][Spot]",
	} {
		parsed, err := task.Parse("task", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Tasks[0].Requested(); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestTextOfSeveralLinesIsCutAfterTheFirst(t *testing.T) {
	for text, want := range map[string]string{"": "", "one": "one", "one:\n two": "one", "one\ntwo:": "one"} {
		if got := firstLine(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
