package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

func TestReadings(t *testing.T) {
	for text, want := range map[string]Reading{
		"":                         {},
		"\n\n":                     {},
		"100.5\n\n":                {Start: new(100.5)},
		"100.N\n101.250000000\n{x": {Start: new(100.0), End: new(101.25)},
		"-1.5\nNaN\n":              {},
		"1\n\n{\"num_steps\": 3, \"time_per_step\": 2.5, \"unknown\": 1}": {Start: new(1.0), Summary: &api.BenchmarkSummary{NumSteps: 3, TimePerStep: new(2.5)}},
		"1\n\n{\"num_steps\": -3}":                                        {Start: new(1.0)},
		"1\n\n{\"num_steps\": 3, \"last_step_time\": -1}":                 {Start: new(1.0)},
	} {
		if got := ParseReading(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %+v, not %+v", text, got, want)
		}
	}
}

func TestCandidatesAreJudged(t *testing.T) {
	up := Look{Launched: true, Exists: true, Up: true, Hash: "h", Resources: "gpus=T4:1", NumNodes: 2, Price: 3, Asked: true}
	with := func(status api.JobStatus, r Reading) Look {
		l := up
		l.Job, l.Reading = &Job{Status: status, Start: new(10.0), End: new(20.0)}, r
		return l
	}
	silent := up
	silent.Asked, silent.Problem = false, "no answer"
	launching := silent
	launching.Launching, launching.Up = true, false
	stopped := silent
	stopped.Up = false
	other := with(api.JobSucceeded, Reading{})
	other.Hash = "another"
	summary := &api.BenchmarkSummary{NumSteps: 4}
	seen := api.BenchmarkCandidate{ClusterHash: "h", Status: api.BenchmarkRunning, RunStart: new(11.0), Summary: summary}
	for name, c := range map[string]struct {
		before api.BenchmarkCandidate
		look   Look
		status string
		exists bool
		end    *float64
	}{
		"nothing was asked for yet":        {api.BenchmarkCandidate{Status: api.BenchmarkInit}, Look{}, api.BenchmarkInit, false, nil},
		"it is launched":                   {api.BenchmarkCandidate{}, launching, api.BenchmarkInit, true, nil},
		"the launch failed":                {api.BenchmarkCandidate{Status: api.BenchmarkInit}, Look{Launched: true}, api.BenchmarkTerminated, false, nil},
		"it is set up":                     {api.BenchmarkCandidate{}, with(api.JobSettingUp, Reading{}), api.BenchmarkInit, true, nil},
		"it runs":                          {seen, with(api.JobRunning, Reading{}), api.BenchmarkRunning, true, nil},
		"it has ended, and noted that":     {seen, with(api.JobRunning, Reading{End: new(19.0)}), api.BenchmarkFinished, true, new(19.0)},
		"its job succeeded":                {seen, with(api.JobSucceeded, Reading{}), api.BenchmarkFinished, true, new(20.0)},
		"its job failed":                   {seen, with(api.JobFailed, Reading{}), api.BenchmarkTerminated, true, nil},
		"its cluster is stopped":           {seen, stopped, api.BenchmarkTerminated, true, nil},
		"its cluster is gone":              {seen, Look{}, api.BenchmarkTerminated, false, nil},
		"its name is another cluster's":    {seen, other, api.BenchmarkTerminated, false, nil},
		"its agent is silent":              {seen, silent, api.BenchmarkRunning, true, nil},
		"a finished one stays that":        {api.BenchmarkCandidate{ClusterHash: "h", Status: api.BenchmarkFinished, RunEnd: new(5.0)}, Look{}, api.BenchmarkFinished, false, new(5.0)},
		"a stopped one started again":      {api.BenchmarkCandidate{ClusterHash: "h", Status: api.BenchmarkTerminated}, with(api.JobFailed, Reading{End: new(19.0)}), api.BenchmarkFinished, true, new(19.0)},
		"a cluster that never got its job": {api.BenchmarkCandidate{Status: api.BenchmarkInit}, up, api.BenchmarkTerminated, true, nil},
	} {
		got := Judge(c.before, c.look)
		if got.Status != c.status || got.ClusterExists != c.exists || !reflect.DeepEqual(got.RunEnd, c.end) {
			t.Errorf("%s: %s, exists %v, ended %v", name, got.Status, got.ClusterExists, got.RunEnd)
		}
		if c.before.Summary != nil && got.Summary != summary {
			t.Errorf("%s: what was read is forgotten", name)
		}
	}
	if got := Judge(seen, with(api.JobRunning, Reading{})); *got.RunStart != 11 || got.Resources != "gpus=T4:1" || got.HourlyPrice != 3 || got.NumNodes != 2 {
		t.Errorf("%+v", got)
	}
}

func TestReports(t *testing.T) {
	now := time.Unix(4600, 0)
	steps := &api.BenchmarkSummary{CreateTime: 1000, WarmupSteps: 1, TotalSteps: new(101), NumSteps: 11, WarmupEndTime: new(1100.0), LastStepTime: new(1300.0)}
	for name, c := range map[string]struct {
		in   api.BenchmarkCandidate
		want api.BenchmarkReport
	}{
		"nothing":            {api.BenchmarkCandidate{Status: api.BenchmarkInit}, api.BenchmarkReport{}},
		"it runs":            {api.BenchmarkCandidate{Status: api.BenchmarkRunning, RunStart: new(1000.0), HourlyPrice: 2}, api.BenchmarkReport{Duration: new(3600.0), Spent: new(2.0)}},
		"it failed":          {api.BenchmarkCandidate{Status: api.BenchmarkTerminated, RunStart: new(1000.0), HourlyPrice: 2}, api.BenchmarkReport{}},
		"it ended":           {api.BenchmarkCandidate{Status: api.BenchmarkFinished, RunStart: new(1000.0), RunEnd: new(2800.0), HourlyPrice: 2}, api.BenchmarkReport{Duration: new(1800.0), Spent: new(1.0)}},
		"clocks went back":   {api.BenchmarkCandidate{Status: api.BenchmarkRunning, RunStart: new(9000.0)}, api.BenchmarkReport{Duration: new(0.0), Spent: new(0.0)}},
		"steps were counted": {api.BenchmarkCandidate{Status: api.BenchmarkRunning, RunStart: new(940.0), HourlyPrice: 36, Summary: steps}, api.BenchmarkReport{Duration: new(360.0), Spent: new(3.6), Steps: new(11), SecondsPerStep: new(20.0), CostPerStep: new(20.0 / 3600 * 36), EstimatedHours: new(2100.0 / 3600), EstimatedCost: new(2100.0 / 3600 * 36)}},
		"what the writer says counts": {api.BenchmarkCandidate{Summary: &api.BenchmarkSummary{NumSteps: 1, TimePerStep: new(3600.0), EstimatedTotalTime: new(7200.0)}, HourlyPrice: 1},
			api.BenchmarkReport{Steps: new(1), SecondsPerStep: new(3600.0), CostPerStep: new(1.0), EstimatedHours: new(2.0), EstimatedCost: new(2.0)}},
	} {
		got, _ := json.Marshal(Report(c.in, now))
		want, _ := json.Marshal(c.want)
		if string(got) != string(want) {
			t.Errorf("%s:\n%s, not\n%s", name, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := strings.Join(append(Clusters("a", 1), Clusters("b", 2)...), " "); got != "sky-bench-a sky-bench-b-0 sky-bench-b-1" {
		t.Error(got)
	}
	for name, good := range map[string]bool{"a": true, "bert-1": true, "": false, "A": false, "a b": false, "-a": false, "a-": false, strings.Repeat("a", 41): false} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A wrapped script notes its start and its end, keeps its exit code, and finds the writers.
func TestWrappedScripts(t *testing.T) {
	run := func(t *testing.T, shell, script string, env ...string) (Reading, string, int) {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, "script"), []byte(Wrap(script)), 0o600); err != nil {
			t.Fatal(err)
		}
		command := func(args ...string) *exec.Cmd {
			c := exec.CommandContext(t.Context(), shell, args...)
			c.Env, c.Dir = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, env...), home
			return c
		}
		first := command("script")
		out, _ := first.CombinedOutput()
		read, err := command("-c", ReadCommand).Output()
		if err != nil {
			t.Fatal(err)
		}
		return ParseReading(string(read)), string(out), first.ProcessState.ExitCode()
	}
	needs := func(t *testing.T, program string) {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	for _, shell := range []string{"sh", "bash"} {
		t.Run(shell, func(t *testing.T) {
			needs(t, shell)
			if r, out, code := run(t, shell, "set -e\necho hello\nexit 0\n"); r.Start == nil || r.End == nil || *r.End < *r.Start || code != 0 || out != "hello\n" {
				t.Errorf("a script that succeeds: %+v, %d, %q", r, code, out)
			}
			if r, _, code := run(t, shell, "exit 3"); r.Start == nil || r.End != nil || code != 3 {
				t.Errorf("a script that fails: %+v, %d", r, code)
			}
			if r, _, _ := run(t, shell, "true", "SKYPILOT_NODE_RANK=1"); r.Start != nil || r.End != nil {
				t.Errorf("another node wrote %+v", r)
			}
			r, out, code := run(t, shell, ". \"$SKY_CALLBACK\"\nsky_callback_init 10 1\nfor i in 1 2 3; do sky_callback_step; done")
			if s := r.Summary; code != 0 || s == nil || s.NumSteps != 3 || *s.TotalSteps != 10 || s.TimePerStep == nil || s.EstimatedTotalTime == nil || s.WarmupEndTime == nil || *s.LastStepTime < s.CreateTime {
				t.Errorf("steps in shell: %d, %q, %+v", code, out, s)
			}
			if r, out, _ := run(t, shell, ". \"$SKY_CALLBACK\"\nsky_callback_init '' 0"); r.Summary == nil || r.Summary.TotalSteps != nil || r.Summary.TimePerStep != nil {
				t.Errorf("no steps in shell: %q, %+v", out, r.Summary)
			}
		})
	}
	t.Run("python", func(t *testing.T) {
		needs(t, "python3")
		const begin = "python3 - <<'E'\nimport sky_callback\nsky_callback.init(%)\n"
		with := func(args, rest string) string { return strings.Replace(begin, "%", args, 1) + rest + "\nE\n" }
		r, out, code := run(t, "sh", with("total_steps=10", "for i in sky_callback.step_iterator(range(3)): pass\nwith sky_callback.step(): pass"))
		if s := r.Summary; code != 0 || s == nil || s.NumSteps != 4 || *s.TotalSteps != 10 || s.TimePerStep == nil || s.EstimatedTotalTime == nil || *s.LastStepTime < s.CreateTime {
			t.Errorf("%d, %q, %+v", code, out, s)
		}
		if r, out, code := run(t, "sh", with("global_rank=1", "sky_callback.step_end()")); code != 0 || r.Summary != nil {
			t.Errorf("another rank: %d, %q, %+v", code, out, r.Summary)
		}
		if _, out, code := run(t, "sh", with("total_steps=1, warmup_steps=2", "")); code == 0 || !strings.Contains(out, "ValueError") {
			t.Errorf("more steps to warm up than there are: %d, %q", code, out)
		}
	})
}
