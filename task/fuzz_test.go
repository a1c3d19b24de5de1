package task

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Every reader must answer, never panic, and what it accepts it must read the
// same from its own canonical text.

func FuzzParse(f *testing.F) {
	for _, data := range exampleFiles(f) {
		f.Add(data)
	}
	bad, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		f.Fatal(err)
	}
	for c := range strings.SplitSeq(string(bad), "\n== ") {
		_, body, _ := strings.Cut(c, "\n")
		input, _, _ := strings.Cut(body, "--\n")
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("fuzz", data)
		if err != nil {
			for _, e := range AllErrors(err) {
				if e.Message == "" || strings.Contains(e.Message, "%!") && !bytes.Contains(data, []byte("%!")) {
					t.Errorf("%#v", e)
				}
				e.Snippet()
			}
			if AllErrors(err) == nil {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		wire, err := d.YAML()
		if err != nil {
			return // a variable without a value
		}
		back, err := Parse("wire", wire)
		if err != nil {
			t.Fatalf("%v in\n%s", err, wire)
		}
		if diff := same(d, back); diff != "" {
			t.Fatalf("%s\n%s", diff, wire)
		}
		formatted, err := Format(data)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse("formatted", formatted); err != nil || same(d, again) != "" {
			t.Fatalf("%v %s\n%s", err, same(d, again), formatted)
		}
		_ = d.Check(CheckOptions{NoFiles: true})
	})
}

// fuzzText runs a reader whose output is its own canonical form.
func fuzzText(f *testing.F, read func(string) (string, error), seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := read(s)
		if err != nil {
			return
		}
		if second, err := read(first); err != nil || second != first {
			t.Errorf("%q gives %q, which gives %q, %v", s, first, second, err)
		}
	})
}

func FuzzAccelerators(f *testing.F) {
	fuzzText(f, func(s string) (string, error) {
		a, err := ParseAccelerator(s)
		a.Memory()
		return a.String(), err
	}, "A100", "A100:8", "A100:0.5", "80GB+:4", "nvidia:80GB+:4", ":", "a:b:c", "x:1e9")
}

func FuzzInfra(f *testing.F) {
	fuzzText(f, func(s string) (string, error) {
		in, err := ParseInfra(s)
		if err == nil && in == (Infra{}) {
			return "*", nil
		}
		return in.String(), err
	}, "aws", "*/r", "aws/*/z", "k8s/a/b", "ssh/p", "ssh/ssh-p", "//", "kubernetes/*")
}

func FuzzCPUMemory(f *testing.F) {
	fuzzText(f, func(s string) (string, error) {
		cpus, err := ParseCPUs(s)
		if err != nil {
			return ParseMemory(s)
		}
		return cpus, nil
	}, "8", "8+", "0.5", "16GB", "4x", "1.5TB+", "-1", "1e3")
}

func FuzzSize(f *testing.F) {
	fuzzText(f, func(s string) (string, error) {
		n, err := ParseDiskSize(s)
		if v, err := ParseVolumeSize(s); err == nil && v < 1 {
			return "", fmt.Errorf("volume of %d", v)
		}
		return fmt.Sprint(n), err
	}, "256", "1TB", "2048MB", "1500MB", "0", "99999999999999999999pb")
}

func FuzzDuration(f *testing.F) {
	fuzzText(f, func(s string) (string, error) {
		m, err := ParseMinutes(s)
		if err != nil {
			m, err = ParseSeconds(s)
		}
		if err == nil && m < 0 {
			return "", nil
		}
		return fmt.Sprint(m), err
	}, "10", "10m", "2h", "1w", "5s", "99999999999999w")
}

func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"A=1", "export A='x'", "A=\"${B:-c}\"\nB=2", "A", "# x\n\nA=b # c", "A='", "'A b'=\"\n\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		vars, err := ParseEnvFile("fuzz", data, func(string) (string, bool) { return "", false })
		if err != nil && len(AllErrors(err)) != 1 {
			t.Errorf("an error of another kind: %v", err)
		}
		if err == nil && vars == nil {
			t.Error("no map")
		}
	})
}
