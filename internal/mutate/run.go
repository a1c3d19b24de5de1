package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A target is a package whose tests are asked.
type target struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Error      *struct{ Err string }

	tests    time.Duration       // what they take without a mutant
	reached  coverage            // by all of them
	each     map[string]coverage // by one test alone
	mutants  []mutant
	verdicts []verdict
}

// list finds the packages that patterns name.
func list(ctx context.Context, patterns []string) ([]*target, error) {
	out, err := output(exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Error"}, patterns...)...))
	if err != nil {
		return nil, err
	}
	var targets []*target
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		t := &target{}
		if err := d.Decode(t); err != nil {
			return nil, err
		}
		if t.Error != nil {
			return nil, errors.New(t.Error.Err)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// output is what a command prints; its error says what it complained about.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args[:min(3, len(cmd.Args))], " "), err, stderr.Bytes())
	}
	return out, nil
}

// measure runs the tests as they are, all together and each alone: they have to
// pass.
func (t *target) measure(ctx context.Context, work string, parallel int) error {
	bin, err := t.build(ctx, work, "", "-cover", "-covermode=set")
	if err != nil {
		return err
	}
	began := time.Now()
	if t.reached, err = t.cover(ctx, bin, ""); err != nil {
		return fmt.Errorf("the tests of %s fail without any change: %w", t.ImportPath, err)
	}
	t.tests = time.Since(began)
	names, err := t.run(ctx, bin, "-test.list=^(Test|Fuzz|Example)")
	if err != nil {
		return fmt.Errorf("listing the tests of %s: %w\n%s", t.ImportPath, err, tail(names))
	}
	t.each = map[string]coverage{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, parallel))
	for name := range strings.FieldsSeq(string(names)) {
		g.Go(func() error {
			c, err := t.cover(ctx, bin, name)
			if err != nil {
				return fmt.Errorf("%s of %s fails alone without any change: %w", name, t.ImportPath, err)
			}
			mu.Lock()
			defer mu.Unlock()
			t.each[name] = c
			return nil
		})
	}
	return g.Wait()
}

// cover runs the named test, or all of them, and reports which lines it ran.
func (t *target) cover(ctx context.Context, bin, name string) (coverage, error) {
	profile := filepath.Join(filepath.Dir(bin), "cover-"+name)
	out, err := t.run(ctx, bin, "-test.run="+only(name), "-test.coverprofile="+profile)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(out))
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return readCoverage(string(text))
}

// only is the pattern that chooses just these tests; none: all tests.
func only(names ...string) string {
	if len(names) == 0 || names[0] == "" {
		return "."
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// witnesses lists the tests that run the mutant's line; none if all have to be
// asked. reached is false if no test runs it.
func (t *target) witnesses(m mutant) (names []string, reached bool) {
	file := t.ImportPath + "/" + filepath.Base(m.file)
	if run, known := t.reached.line(file, m.line); !run {
		return nil, !known
	}
	for name, c := range t.each {
		if run, _ := c.line(file, m.line); run {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

// find lists the package's mutants.
func (t *target) find() error {
	for _, name := range t.GoFiles {
		file := filepath.Join(t.Dir, name)
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		more, err := mutants(file, src)
		if err != nil {
			return err
		}
		t.mutants = append(t.mutants, more...)
	}
	return nil
}

// A verdict is what the tests made of a mutant.
type verdict struct {
	mutant mutant
	how    outcome
}

// counts reports whether it is one: a mutant that does not compile, or was not
// judged, has none.
func (v verdict) counts() bool { return v.how != "" && v.how != invalid }

type outcome string

const (
	caught    outcome = "caught"
	timedOut  outcome = "timed out" // counts as caught
	survived  outcome = "survived"
	unreached outcome = "not covered" // survived: no test runs the line
	invalid   outcome = "invalid"     // does not compile: counts as nothing
)

// judge asks the tests about a mutant. work is an empty folder.
func (t *target) judge(ctx context.Context, m mutant, work string) (outcome, error) {
	names, reached := t.witnesses(m)
	if !reached {
		return unreached, nil
	}
	src, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(work, "changed.go")
	if err := os.WriteFile(changed, m.apply(src), 0o600); err != nil {
		return "", err
	}
	overlay := filepath.Join(work, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	bin, err := t.build(ctx, work, overlay)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return invalid, nil
	}
	limit, cancel := context.WithTimeout(ctx, 3*t.tests+30*time.Second)
	defer cancel()
	_, err = t.run(limit, bin, "-test.failfast", "-test.run="+only(names...))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case limit.Err() != nil:
		return timedOut, nil
	case err != nil:
		return caught, nil
	}
	return survived, nil
}

func (t *target) build(ctx context.Context, work, overlay string, flags ...string) (string, error) {
	bin := filepath.Join(work, "tests")
	args := append([]string{"test", "-c", "-vet=off", "-o", bin}, flags...)
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	_, err := output(exec.CommandContext(ctx, "go", append(args, t.ImportPath)...))
	return bin, err
}

// run runs the tests in their folder, as go test does, and ends whatever they
// started and left.
func (t *target) run(ctx context.Context, bin string, flags ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, bin, append([]string{"-test.timeout=0"}, flags...)...)
	// Property tests would keep the examples that a mutant fails beside the source.
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=true")
	cmd.Dir = t.Dir
	cmd.WaitDelay = 5 * time.Second
	group(cmd)
	return cmd.CombinedOutput()
}

func tail(out []byte) []byte { return out[max(0, len(out)-4<<10):] }
