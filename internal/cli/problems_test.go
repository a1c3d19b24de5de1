package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

// What a server finds wrong with a field of a task is shown at its place in the file.
func TestErrorsOfAServerHaveTheirPlace(t *testing.T) {
	const one = "name: a\nfile_mounts:\n  /x: {name: a_b}\n"
	const two = one + "---\nname: b\nfile_mounts:\n  /x:\n    name: c_d\n"
	about := func(task, field string) *api.Error {
		return &api.Error{Type: api.ErrStorageName, Message: "it is refused", Hint: "Choose another name.",
			Details: map[string]any{api.DetailTask: task, api.DetailField: field}}
	}
	for name, row := range map[string]struct {
		text string
		err  *api.Error
		want string
	}{
		"a key of a mount":                   {one, about("a", "file_mounts./x.name"), "t.yaml:3:8: error: it is refused\n   3 |   /x: {name: a_b}\n     |        ^\nHint: Choose another name.\n"},
		"a key that is not set":              {one, about("a", "file_mounts./x.source"), "t.yaml:3:3: error: it is refused\n   3 |   /x: {name: a_b}\n     |   ^\nHint: Choose another name.\n"},
		"the second task":                    {two, about("b", "file_mounts./x.name"), "t.yaml:8:5: error: it is refused\n   8 |     name: c_d\n     |     ^\nHint: Choose another name.\n"},
		"a task of another name, of several": {two, about("c", "file_mounts./x.name"), "sky.exceptions.StorageNameError: it is refused\nHint: Choose another name.\n"},
		"no field":                           {one, &api.Error{Type: api.ErrValue, Message: "it is refused"}, "ValueError: it is refused\n"},
		"no text":                            {"", about("a", "file_mounts./x.name"), "sky.exceptions.StorageNameError: it is refused\nHint: Choose another name.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := newApp(Program{Args: []string{"launch"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Environ: []string{"HOME=" + t.TempDir()}})
			if row.text != "" {
				dag, err := task.Parse("t.yaml", []byte(row.text))
				if err != nil {
					t.Fatal(err)
				}
				a.dag = dag
			}
			a.showError(row.err)
			if out.String() != row.want {
				t.Errorf("%q\nwant %q", out.String(), row.want)
			}
			if where := a.asFailure(row.err).Where; (len(where) == 1) != strings.Contains(row.want, "t.yaml") {
				t.Errorf("for programs: %v", where)
			}
		})
	}
}
