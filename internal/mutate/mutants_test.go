package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const example = `package p

func f(a, b int, done bool) error {
	defer unlock()
	for a < b {
		if done && ready() {
			continue
		}
		x.count = a + 2
		log.Info("no mutant")
		drop(b)
	}
	if a == b {
		return err
	}
	name := "a" + "b"
	use(name)
	go func() bool { return true }()
	return nil
}
`

func TestMutantsOfEachKindAreFound(t *testing.T) {
	got := map[string][]string{}
	all, err := mutants("p.go", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		got[m.kind] = append(got[m.kind], m.from+" → "+m.to)
	}
	want := map[string][]string{
		kindCall:       {"defer unlock() → ", "drop(b) → ", "use(name) → "},
		kindCondition:  {"a < b → false", "done && ready() → !(done && ready())"},
		kindComparison: {"< → <=", "== → !="},
		kindLogic:      {"&& → ||"},
		kindBranch:     {"continue → break"},
		kindAssignment: {"x.count = a + 2 → "},
		kindArithmetic: {"+ → -"},
		kindConstant:   {"2 → 3", "true → false"},
		kindReturn:     {"err → nil"},
	}
	for kind, list := range want {
		if !slices.Equal(got[kind], list) {
			t.Errorf("%s: got %q, want %q", kind, got[kind], list)
		}
		delete(got, kind)
	}
	if len(got) > 0 {
		t.Errorf("found as well: %v", got)
	}
}

func TestEveryMutantOfThisCommandParses(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, err := mutants(file, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			changed := m.apply(src)
			if string(changed) == string(src) {
				t.Errorf("%v changes nothing", m)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), file, changed, 0); err != nil {
				t.Errorf("%v: %v", m, err)
			}
		}
	}
}

func TestCoverageKnowsLinesThatNoTestRuns(t *testing.T) {
	c, err := readCoverage("mode: set\nm/p/a.go:3.10,7.2 2 1\nm/p/a.go:7.2,9.3 1 0\nm/p/a.go:11.1,12.2 1 0\n")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[int][2]bool{3: {true, true}, 7: {true, true}, 8: {false, true}, 10: {false, false}, 11: {false, true}} {
		if run, known := c.line("m/p/a.go", line); run != want[0] || known != want[1] {
			t.Errorf("line %d: run %v, known %v; want %v", line, run, known, want)
		}
	}
	if _, err := readCoverage("mode: set\nnonsense\n"); err == nil {
		t.Error("nonsense was read as a profile")
	}
}

func TestOnlyTestsThatRunTheLineAreAsked(t *testing.T) {
	at := func(run bool, from, to int) coverage { return coverage{"m/a.go": {{from: from, to: to, run: run}}} }
	p := &target{
		ImportPath: "m", reached: coverage{"m/a.go": {{from: 1, to: 5, run: true}, {from: 6, to: 9, run: true}, {from: 20, to: 21}}},
		each: map[string]coverage{"TestB": at(true, 1, 5), "TestA": at(true, 3, 5), "TestC": at(false, 1, 5)},
	}
	for line, want := range map[int]string{
		1: "[TestB] true", 4: "[TestA TestB] true",
		7:  "[] true",  // run by all together only: all are asked
		15: "[] true",  // outside of blocks
		20: "[] false", // run by none
	} {
		names, reached := p.witnesses(mutant{file: "/x/a.go", line: line})
		if got := fmt.Sprint(names, reached); got != want {
			t.Errorf("line %d: %s, want %s", line, got, want)
		}
	}
	if got := only("TestA", "TestB"); got != "^(TestA|TestB)$" {
		t.Error(got)
	}
}

// A module with one good and one weak test, judged for real.
func TestSurvivorsAreWhatTheTestsDoNotNotice(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a dozen test binaries")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"p.go": `package p

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Never() int { return 7 }
`,
		"p_test.go": `package p

import "testing"

func TestMax(t *testing.T) {
	if Max(1, 2) != 2 || Max(3, 2) != 3 {
		t.Fail()
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out strings.Builder
	n, err := mutate(t.Context(), &out, options{n: 10, seed: 1, parallel: 2}, []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	report := out.String()
	if n != 1 || !strings.Contains(report, "1 of 3 caught") {
		t.Errorf("%d caught:\n%s", n, report)
	}
	for _, line := range []string{"comparison: > → >= (survived)", "constant: 7 → 8 (not covered)"} {
		if !strings.Contains(report, line) {
			t.Errorf("the report lacks %q:\n%s", line, report)
		}
	}
}
