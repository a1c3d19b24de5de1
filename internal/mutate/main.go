// Command mutate asks how much the tests of packages notice. It changes one
// small thing in the source at a time (a comparison, a condition, a returned
// error, a call that is dropped, a constant), runs those tests of that package
// alone that run the line, and prints which changes no test noticed.
//
//	go run ./internal/mutate -n 40 ./internal/jobs ./internal/cluster
//
// The source files are not touched: changes reach the compiler as an overlay. A
// change that does not compile is replaced by another one. One on a line that no
// test runs counts as survived without a run. The choice is random; -seed
// repeats it.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func main() {
	n := flag.Int("n", 200, "how many mutants, divided evenly between the packages")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choice")
	parallel := flag.Int("parallel", 2, "how many mutants are judged at once")
	least := flag.Int("least", 0, "fail if fewer mutants are caught")
	only := flag.String("file", "", "only mutants of files whose name contains this")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [flags] PACKAGE...\n\nChanges one small thing at a time and prints what the package's tests do not notice.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	total, err := mutate(ctx, os.Stdout, options{n: *n, seed: *seed, parallel: *parallel, file: *only}, flag.Args())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	case total < *least:
		fmt.Fprintf(os.Stderr, "mutate: %d mutants caught, fewer than %d\n", total, *least)
		os.Exit(1)
	}
}

type options struct {
	n, parallel int
	seed        uint64
	file        string
}

// mutate judges the mutants and reports; it returns how many were caught.
func mutate(ctx context.Context, out io.Writer, o options, patterns []string) (int, error) {
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	targets, err := list(ctx, patterns)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "seed %d\n", o.seed)
	for i, t := range targets {
		if err := t.measure(ctx, work, o.parallel); err != nil {
			return 0, err
		}
		if err := t.find(); err != nil {
			return 0, err
		}
		t.mutants = choose(t.mutants, o.file, rand.New(rand.NewPCG(o.seed, uint64(i))))
		fmt.Fprintf(out, "%s: %d mutants, tests take %v\n", t.ImportPath, len(t.mutants), t.tests.Round(100*time.Millisecond))
	}
	for i, t := range targets {
		share := o.n/len(targets) + min(1, max(0, o.n%len(targets)-i))
		if err = t.judgeSome(ctx, out, work, share, o.parallel); err != nil {
			break
		}
	}
	return report(out, targets), err // of what was judged, if it was interrupted
}

// choose is the mutants in a random order, those of other files left out.
func choose(all []mutant, file string, draw *rand.Rand) []mutant {
	var out []mutant
	for _, m := range all {
		if strings.Contains(filepath.Base(m.file), file) {
			out = append(out, m)
		}
	}
	draw.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// judgeSome judges mutants in their order until n compiled. Which ones count does
// not depend on who is faster.
func (t *target) judgeSome(ctx context.Context, out io.Writer, work string, n, parallel int) error {
	for from := 0; n > 0 && from < len(t.mutants); {
		batch := t.mutants[from:min(from+n, len(t.mutants))]
		from += len(batch)
		verdicts, err := t.judgeAll(ctx, out, work, batch, parallel)
		for _, v := range verdicts {
			if v.counts() {
				t.verdicts = append(t.verdicts, v)
				n--
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeAll judges mutants and prints each verdict when it is there. With an error
// come those that were judged.
func (t *target) judgeAll(ctx context.Context, out io.Writer, work string, all []mutant, parallel int) ([]verdict, error) {
	verdicts, errs := make([]verdict, len(all)), make([]error, len(all))
	var printing sync.Mutex
	places := make(chan struct{}, max(1, parallel))
	var wg sync.WaitGroup
	for i, m := range all {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			dir, err := os.MkdirTemp(work, "mutant-")
			if err != nil {
				errs[i] = err
				return
			}
			defer os.RemoveAll(dir)
			verdicts[i].mutant = m
			verdicts[i].how, errs[i] = t.judge(ctx, m, dir)
			if v := verdicts[i]; v.counts() {
				printing.Lock()
				defer printing.Unlock()
				fmt.Fprintf(out, "%-11s %s\n", v.how, v.mutant)
			}
		})
	}
	wg.Wait()
	return verdicts, cmp.Or(errs...)
}

// report prints the table and the survivors; it returns how many were caught.
func report(out io.Writer, targets []*target) (total int) {
	fmt.Fprintf(out, "\n%-56s %7s %9s %12s\n", "PACKAGE", "CAUGHT", "SURVIVED", "NOT COVERED")
	judged := 0
	for _, t := range targets {
		count := map[outcome]int{}
		for _, v := range t.verdicts {
			count[v.how]++
		}
		good := count[caught] + count[timedOut]
		total += good
		judged += len(t.verdicts)
		fmt.Fprintf(out, "%-56s %7d %9d %12d\n", t.ImportPath, good, count[survived], count[unreached])
	}
	fmt.Fprintf(out, "\n%d of %d caught. Survivors:\n", total, judged)
	for _, t := range targets {
		for _, v := range t.verdicts {
			if v.how == survived || v.how == unreached {
				fmt.Fprintf(out, "  %s (%s)\n", v.mutant, v.how)
			}
		}
	}
	return total
}
