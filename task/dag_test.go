package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadKeepsTheText(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"# mine\nrun:   echo   # yes\n", "# mine\nrun:   echo   # yes\n"},
		{"run: x\nsecrets: ['secrets:A']\n", "run: x\nsecrets: ['secrets:A']\n"},
		{"# mine\nsecrets:\n  A: hush  # token\n  B:\nrun: x\n", "# mine\nsecrets:\n  A: <redacted>\n  B: null\nrun: x\n"},
		{"envs: {SKYPILOT_DOCKER_PASSWORD: hush, A: b}\n", "envs: {SKYPILOT_DOCKER_PASSWORD: <redacted>, A: b}\n"},
		{"run: x\n_user_specified_yaml: 'run: y'\n", "run: y"},
	} {
		d, err := Load(writeFile(t, c.file))
		if err != nil {
			t.Errorf("%q: %v", c.file, err)
			continue
		}
		if got := d.Tasks[0].UserYAML; got != c.want {
			t.Errorf("%q: kept %q, want %q", c.file, got, c.want)
		}
	}
	d, err := Load(writeFile(t, "name: p\n---\n# one\nrun: x\n--- # two\nrun: |\n  ---x\n...\n"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := d.Tasks[0].UserYAML, d.Tasks[1].UserYAML; a != "# one\nrun: x\n" || b != "run: |\n  ---x\n...\n" {
		t.Errorf("%q %q", a, b)
	}
}

func TestLoadSaysWhyNot(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "none.yaml: cannot read the task file: no such file",
		dir:                             ": cannot read the task file: is a directory",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestErrorsAreFoundByType(t *testing.T) {
	_, err := Parse("t.yaml", []byte("nam: x\nruns: y\n"))
	var one *Error
	var all Errors
	if !errors.As(err, &one) || !errors.As(err, &all) || len(all) != 2 || one.Line != 1 || one.Field != "nam" {
		t.Errorf("%#v", err)
	}
	if got := err.Error(); got != "t.yaml:1:1: unknown field \"nam\" in a task; did you mean \"name\"?\nt.yaml:2:1: unknown field \"runs\" in a task; did you mean \"run\"?" {
		t.Error(got)
	}
	if AllErrors(errors.New("x")) != nil || AllErrors(nil) != nil {
		t.Error("other errors hold no mistakes")
	}
	_, err = Parse("t.yaml", []byte("file_mounts: {/a: {source: ftp://x}}"))
	if !errors.As(fmt.Errorf("reading: %w", err), &one) || one.Class != "sky.exceptions.StorageSourceError" {
		t.Errorf("%#v", one)
	}
}

func TestSnippet(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"run: x\nnum_nodes: 0\n", "   2 | num_nodes: 0\n     |            ^\n"},
		{"name: \"é日\"\nrun: [\"é日\", 1]", ""},
		{"envs: {é: \"日本語\", b: 1, run: @}", "   1 | envs: {é: \"日本語\", b: 1, run: @}\n     |                             ^\n"},
		{"run: x\r\nnum_nodes: 0\r\n", "   2 | num_nodes: 0\n     |            ^\n"},
		{"", ""},
	} {
		_, err := Parse("t", []byte(c.file))
		errs := AllErrors(err)
		if len(errs) == 0 {
			t.Errorf("%q: no mistake", c.file)
			continue
		}
		if got := errs[0].Snippet(); c.want != "" && got != c.want || c.file == "" && got != "" {
			t.Errorf("%q: %v\n%s", c.file, errs[0], got)
		}
	}
	_, err := Parse("t", []byte("envs: {A: "+strings.Repeat("x", 300)+"}\nfile_mounts: {"+strings.Repeat("a", 200)+": 5"+strings.Repeat(" ", 90)+"}"))
	lines := strings.Split(AllErrors(err)[0].Snippet(), "\n")
	if len(lines[0]) > 120 || lines[0][strings.Index(lines[1], "^")] != '5' {
		t.Errorf("%s\n%s", lines[0], lines[1])
	}
}

func TestFillNames(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"name: a\nrun: x", "a: a"},
		{"name: d\n---\nname: a\nrun: x", "d: d"},
		{"run: x", "sky-*-ann: sky-*-ann"},
		{"name: d\n---\nrun: x\n---\nname: b\n---\nrun: z", "d: d-0 b d-2"},
		{"run: x\n---\nrun: y", "sky-*-ann: sky-*-ann-0 sky-*-ann-1"},
	} {
		d, err := Parse("t", []byte(c.file))
		if err != nil {
			t.Fatal(err)
		}
		d.FillNames("Ann")
		var names []string
		for _, k := range d.Tasks {
			names = append(names, k.Name)
		}
		got := d.Name + ": " + strings.Join(names, " ")
		if strings.HasPrefix(d.Name, "sky-") {
			got = strings.ReplaceAll(got, d.Name[4:8], "*")
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.file, got, c.want)
		}
	}
}

func TestDisplayHasNoHeaderForOneTask(t *testing.T) {
	d, err := Load(writeFile(t, "name: a\nrun: x\nresources: {ports: 80}\n_metadata: {git_commit: c}\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.DisplayYAML()
	want := "name: a\n\nresources:\n  ports:\n    - '80'\n\nnum_nodes: 1\nrun: x\n"
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
}

// A billion laughs must end soon.
func TestAliasesAreBounded(t *testing.T) {
	text := "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		text += fmt.Sprintf("b%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	if _, err := Parse("t", []byte(text)); err == nil || !strings.Contains(err.Error(), "expand to more than") {
		t.Errorf("%.200v", err)
	}
}

func TestDeepNesting(t *testing.T) {
	if _, err := Parse("t", []byte("config: {kubernetes: {pod_config: "+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+"}}")); err == nil {
		t.Error("accepted")
	}
}

func TestErrorsTellNoSecrets(t *testing.T) {
	const secret = "tOp-\"sEcReT"
	for _, file := range []string{
		"workdir: {url: '$S'}", "service: {readiness_probe: '$S'}", "volumes: {'$S': v}", "volumes: {/a: {name: a, sub_path: '$S'}}", "file_mounts: {/a: {source: 'ftp://$S'}}",
		"file_mounts: {/a: {source: 's3://$S/'}}", "service: {readiness_probe: {path: /, post_data: '$S'}}", "workdir: $S", "file_mounts: {/a: $S}", "file_mounts: {/a: {name: b, mode: $S}}",
	} {
		d, err := Parse("t", []byte("secrets: {S: null}\n"+file))
		if err == nil {
			_, err = d.Override(Overrides{Secrets: map[string]string{"S": secret}})
		}
		if err == nil {
			err = d.Check(CheckOptions{Dir: t.TempDir()})
		}
		if err == nil || strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("%s: %v", file, err)
		}
		if _, err := Parse("t", []byte("secrets: {S: 'tOp-\"sEcReT'}\n"+file)); err != nil && strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestManyReadersAtOnce(t *testing.T) {
	for range 8 {
		t.Run("reader", func(t *testing.T) {
			t.Parallel()
			for _, file := range []string{"run: x\nresources: {gpus: A100:8}", "name: g\nexecution: parallel\n---\nname: a\nrun: x\n", "service: {replicas: 1}\nresources: {ports: 80}"} {
				if _, err := Parse("t", []byte(file)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
