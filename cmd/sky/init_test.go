package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Each command pays for the initialisation of every package that is linked in, also
// those of clouds that it does not use. What it allocates is the same on each machine.
const mostInitBytes, mostInitAllocs = 2_150_000, 16_500

// initCost is what a package allocates before main.
type initCost struct {
	name          string
	bytes, allocs int
}

func initCosts(t testing.TB) (costs []initCost, ms float64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{"sky", "-test.run=^$"} // by its name it knows that it is no test, see lazyregexp
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(strings.NewReader(trace.String())); lines.Scan(); {
		var c initCost
		var at, took float64
		if _, err := fmt.Sscanf(lines.Text(), "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &c.name, &at, &took, &c.bytes, &c.allocs); err == nil {
			costs, ms = append(costs, c), ms+took
		}
	}
	slices.SortFunc(costs, func(a, b initCost) int { return cmp.Compare(b.bytes, a.bytes) })
	return costs, ms
}

func TestInitialisationStaysInItsBudget(t *testing.T) {
	if testing.Short() || testing.CoverMode() != "" {
		t.Skip("the race detector, which runs with -short, and coverage are initialised, too")
	}
	costs, _ := initCosts(t)
	if len(costs) < 100 {
		t.Fatalf("%d packages are initialised: the trace was not understood", len(costs))
	}
	var bytes, allocs int
	for _, c := range costs {
		bytes, allocs = bytes+c.bytes, allocs+c.allocs
	}
	t.Logf("%d bytes in %d allocations", bytes, allocs)
	if bytes > mostInitBytes || allocs > mostInitAllocs {
		t.Errorf("initialisation takes %d bytes in %d allocations; the dearest packages: %+v", bytes, allocs, costs[:10])
	}
}

// BenchmarkInitialisation shows what starting costs before main: time, bytes and allocations.
func BenchmarkInitialisation(b *testing.B) {
	var ms, bytes, allocs float64
	for b.Loop() {
		costs, took := initCosts(b)
		ms += took
		for _, c := range costs {
			bytes, allocs = bytes+float64(c.bytes), allocs+float64(c.allocs)
		}
	}
	b.ReportMetric(ms/float64(b.N), "init-ms")
	b.ReportMetric(bytes/float64(b.N), "init-bytes")
	b.ReportMetric(allocs/float64(b.N), "init-allocs")
}
