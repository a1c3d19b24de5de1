package buckets

import (
	"errors"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

// What only the server finds wrong with a bucket is found again in the task's text.
func TestRefusalsNameTheFieldOfTheTask(t *testing.T) {
	b := newBed(t)
	b.must(b.prepare(b.with("taken")))
	b.must(b.s3.Bucket("of-others").Create(t.Context(), nil))
	for name, row := range map[string]struct {
		mount string // the task's text below file_mounts
		want  string // what the place is in front of
		kind  string
	}{
		"a name that only the chosen store refuses": {"/x: {^name: a_b, source: /tmp}", "name", api.ErrStorageName},
		"a name in another store":                   {"/x: {^name: taken, source: /tmp, store: r2}", "name", api.ErrStorageCreate},
		"nothing to copy":                           {"/x: {^name: not-there, mode: COPY}", "name", api.ErrStorageSource},
		"a bucket of others":                        {"/x: {^name: of-others, mode: MOUNT}", "name", api.ErrStorageSpec},
		"no such bucket":                            {"/x: {mode: COPY, ^source: s3://nobody-has-it}", "source", api.ErrStorageGet},
		"no such bucket, as text":                   {"^/x: s3://nobody-has-it", "/x", api.ErrStorageGet},
		"a source that is not there":                {"/x: {name: taken, store: r2, ^source: s3://nobody-has-it, mode: COPY}", "source", api.ErrStorageGet},
		"a store that sky makes no buckets in":      {"^/x: {name: some-bucket, store: hf}", "/x", api.ErrStorageSpec},
	} {
		t.Run(name, func(t *testing.T) {
			text, line, column := pointed("name: t\nrun: 'true'\nfile_mounts:\n  " + row.mount + "\n")
			dag, err := task.Parse("task.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			err = b.Check(t.Context(), b.call, dag.Tasks[0], false)
			e, ok := errors.AsType[*api.Error](err)
			if !ok || e.Type != row.kind {
				t.Fatalf("%v (%s)", err, kind(err))
			}
			field, _ := e.Details[api.DetailField].(string)
			if at := dag.Tasks[0].ErrorAt(field, "%s", e.Message); at.Line != line || at.Column != column {
				t.Errorf("%q is at %d:%d, want %d:%d (%s)", field, at.Line, at.Column, line, column, row.want)
			}
			if e.Details[api.DetailTask] != "t" {
				t.Errorf("of the task %v", e.Details[api.DetailTask])
			}
		})
	}
}

// pointed is a text without its "^", and where that was.
func pointed(text string) (without string, line, column int) {
	line, column = 1, 1
	for i, c := range text {
		if c == '^' {
			return text[:i] + text[i+1:], line, column
		}
		if column++; c == '\n' {
			line, column = line+1, 1
		}
	}
	return text, 0, 0
}
