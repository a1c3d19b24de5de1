// Package bench knows what benchmarks are: one task on several resources, each on a
// cluster of its own. All of it is pure; the server and the command line act.
package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Clusters are the names of the clusters of a benchmark with so many candidates.
func Clusters(name string, n int) []string {
	if n == 1 {
		return []string{"sky-bench-" + name}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = "sky-bench-" + name + "-" + strconv.Itoa(i)
	}
	return names
}

// JobID is the job of a cluster that is measured: its first.
const JobID = 1

//go:embed writers/sky_callback.sh
var shellWriter string

//go:embed writers/sky_callback.py
var pythonWriter string

// Wrap is the script of a task with what notes when it began and, if it succeeds, when
// it ended. The writers for its steps are put where it finds them.
func Wrap(run string) string {
	return `mkdir -p ~/.sky/sky_benchmark_dir ~/.sky/sky_callback
[ -e ~/sky_benchmark_dir ] || ln -s .sky/sky_benchmark_dir ~/sky_benchmark_dir
cat >~/.sky/sky_callback/sky_callback.sh <<'SKY_CALLBACK_SH'
` + shellWriter + `SKY_CALLBACK_SH
cat >~/.sky/sky_callback/sky_callback.py <<'SKY_CALLBACK_PY'
` + pythonWriter + `SKY_CALLBACK_PY
export SKY_CALLBACK=~/.sky/sky_callback/sky_callback.sh PYTHONPATH=~/.sky/sky_callback${PYTHONPATH:+:$PYTHONPATH}
[ "${SKYPILOT_NODE_RANK:-0}" != 0 ] || date +%s.%N >~/.sky/sky_benchmark_dir/run_start.txt
(
` + strings.TrimSuffix(run, "\n") + `
)
sky_bench_code=$?
[ "${SKYPILOT_NODE_RANK:-0}" != 0 ] || [ $sky_bench_code != 0 ] || date +%s.%N >~/.sky/sky_benchmark_dir/run_end.txt
exit $sky_bench_code
`
}

// ReadCommand prints, on the head of a cluster, what [ParseReading] reads.
const ReadCommand = `cd ~/.sky/sky_benchmark_dir 2>/dev/null || exit 0
echo "$(head -c 64 run_start.txt 2>/dev/null | head -n 1)"
echo "$(head -c 64 run_end.txt 2>/dev/null | head -n 1)"
s=$(ls -d sky-callback-*/summary.json 2>/dev/null | tail -n 1)
[ -z "$s" ] || head -c 65536 "$s"`

// A Reading is what the files of a candidate say; nil: nothing yet.
type Reading struct {
	Start, End *float64
	Summary    *api.BenchmarkSummary
}

// ParseReading reads what [ReadCommand] printed. The files are the task's to write: what
// makes no sense counts as absent.
func ParseReading(text string) Reading {
	var r Reading
	for _, to := range []**float64{&r.Start, &r.End} {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		whole, fraction, _ := strings.Cut(strings.TrimSpace(line), ".")
		if _, err := strconv.ParseUint(fraction, 10, 64); err != nil { // date without %N
			fraction = "0"
		}
		if at, err := strconv.ParseFloat(whole+"."+fraction, 64); err == nil && at > 0 && plausible(&at) {
			*to = &at
		}
	}
	s := new(api.BenchmarkSummary)
	if json.Unmarshal([]byte(text), s) != nil || s.NumSteps < 0 || s.WarmupSteps < 0 ||
		!plausible(s.FirstStepTime) || !plausible(s.WarmupEndTime) || !plausible(s.LastStepTime) || !plausible(s.TimePerStep) || !plausible(s.EstimatedTotalTime) {
		return r
	}
	r.Summary = s
	return r
}

// plausible reports whether a time, or a number of seconds, can be one.
func plausible(x *float64) bool { return x == nil || *x >= 0 && *x < 1e11 && !math.IsNaN(*x) }

// A Look is what was found out about a candidate's cluster.
type Look struct {
	Launching bool // its launch is on its way
	Launched  bool // it was asked for at some time
	Exists    bool
	Up        bool
	Hash      string // of the cluster that exists
	Resources string
	NumNodes  int
	Price     float64 // $/h of all nodes

	Asked   bool // its agent answered
	Job     *Job // nil: there is none
	Reading Reading
	Problem string
}

// A Job is how far the measured job is.
type Job struct {
	Status     api.JobStatus
	Start, End *float64
}

// Judge is a candidate after a look at its cluster. What was read once stays known when
// the cluster is gone.
func Judge(c api.BenchmarkCandidate, l Look) api.BenchmarkCandidate {
	if l.Exists && c.ClusterHash != "" && c.ClusterHash != l.Hash {
		l = Look{Launched: true} // another cluster took the name
	}
	c.ClusterExists, c.Problem, c.Report = l.Exists || l.Launching, l.Problem, nil
	if l.Exists {
		c.ClusterHash, c.Resources, c.NumNodes, c.HourlyPrice = l.Hash, l.Resources, l.NumNodes, l.Price
	}
	if c.Status == api.BenchmarkFinished {
		return c
	}
	if l.Asked {
		c.RunStart, c.RunEnd, c.Summary = or(l.Reading.Start, c.RunStart), or(l.Reading.End, c.RunEnd), or(l.Reading.Summary, c.Summary)
		if l.Job != nil {
			c.JobStatus = string(l.Job.Status)
			if l.Job.Status == api.JobRunning || l.Job.Status.Terminal() { // before that it is set up
				c.RunStart = or(c.RunStart, l.Job.Start)
			}
			if l.Job.Status == api.JobSucceeded {
				c.RunEnd = or(c.RunEnd, l.Job.End)
			}
		}
	}
	switch {
	case c.RunEnd != nil:
		c.Status = api.BenchmarkFinished
	case l.Asked && l.Job != nil && l.Job.Status.Terminal():
		c.Status = api.BenchmarkTerminated
	case l.Asked && l.Job != nil && (l.Job.Status == api.JobRunning || c.RunStart != nil):
		c.Status = api.BenchmarkRunning
	case l.Launching:
		c.Status = api.BenchmarkInit
	case l.Asked && l.Job == nil && l.Launched, l.Exists && !l.Up, !l.Exists && (l.Launched || c.ClusterHash != ""):
		c.Status = api.BenchmarkTerminated
	case c.Status == "" || l.Asked:
		c.Status = api.BenchmarkInit
	}
	return c
}

// or is the first of two that is known.
func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// Report works out what a candidate took and will take.
func Report(c api.BenchmarkCandidate, now time.Time) *api.BenchmarkReport {
	r, s := new(api.BenchmarkReport), c.Summary
	cost := func(seconds float64) *float64 { return new(seconds / 3600 * c.HourlyPrice) }
	end := c.RunEnd
	if s != nil {
		end = or(end, s.LastStepTime)
	}
	if end == nil && c.Status == api.BenchmarkRunning {
		end = new(float64(now.UnixMilli()) / 1e3)
	}
	if c.RunStart != nil && end != nil {
		r.Duration = new(max(0, *end-*c.RunStart))
		r.Spent = cost(*r.Duration)
	}
	if s == nil {
		return r
	}
	r.Steps = &s.NumSteps
	each, whole := s.TimePerStep, s.EstimatedTotalTime
	if each == nil && s.WarmupEndTime != nil && s.LastStepTime != nil && s.NumSteps > s.WarmupSteps {
		each = new(max(0, *s.LastStepTime-*s.WarmupEndTime) / float64(s.NumSteps-s.WarmupSteps))
	}
	if whole == nil && each != nil && s.WarmupEndTime != nil && s.TotalSteps != nil {
		whole = new(max(0, *s.WarmupEndTime-s.CreateTime+*each*float64(*s.TotalSteps-s.WarmupSteps)))
	}
	if r.SecondsPerStep = each; each != nil {
		r.CostPerStep = cost(*each)
	}
	if whole != nil {
		r.EstimatedHours, r.EstimatedCost = new(*whole/3600), cost(*whole)
	}
	return r
}

// Open reports whether there is more to find out about a candidate.
func Open(c api.BenchmarkCandidate) bool {
	return c.Status != api.BenchmarkFinished && c.Status != api.BenchmarkTerminated
}

// CheckName refuses names of benchmarks whose clusters could not be named after them.
func CheckName(name string) error {
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", r) {
			return fmt.Errorf("the name of a benchmark has only lower-case letters, digits and hyphens: %q does not", name)
		}
	}
	if name == "" || len(name) > 40 || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
		return fmt.Errorf("the name of a benchmark has 1 to 40 characters and neither begins nor ends with a hyphen: %q does not fit", name)
	}
	return nil
}
