package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// A problem is one thing to tell about a file, for people and for editors.
type problem struct {
	File     string `json:"file"`
	Line     int    `json:"line"`   // from 1; 0: the file as a whole
	Column   int    `json:"column"` // from 1, in characters
	Severity string `json:"severity"`
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`

	snippet string
	about   string // what the message is about, where it does not say so
}

// The severities.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// verdict is the outcome of checking some files.
type verdict struct {
	Files    int       `json:"files"`
	Wrong    int       `json:"wrong"` // files with errors
	Problems []problem `json:"problems"`
}

func (v *verdict) add(found []problem) {
	v.Files++
	for _, p := range found {
		if p.Severity == severityError {
			v.Wrong++
			break
		}
	}
	v.Problems = append(v.Problems, found...)
}

// taskProblems lists what is wrong with a task file.
func taskProblems(file string, err error) []problem {
	if err == nil {
		return nil
	}
	all := task.AllErrors(err)
	if len(all) == 0 {
		return []problem{{File: file, Severity: severityError, Message: err.Error()}}
	}
	out := make([]problem, len(all))
	for i, e := range all {
		out[i] = problem{
			File: file, Line: e.Line, Column: e.Column, Severity: severityError,
			Field: e.Field, Message: e.Message, Hint: e.Hint, snippet: e.Snippet(),
		}
		if out[i].snippet == "" {
			out[i].about = e.Field
		}
	}
	return out
}

// placed is what a server found wrong with a field of a task, at its place in the file that
// the command has read; nil: the error is about no field, or about one that is in no file.
func (a *app) placed(e *api.Error) *task.Error {
	field, ok := e.Details[api.DetailField].(string)
	if !ok || a.dag == nil {
		return nil
	}
	name, _ := e.Details[api.DetailTask].(string)
	var found *task.Error
	for _, t := range a.dag.Tasks {
		if len(a.dag.Tasks) > 1 && t.Name != name {
			continue
		}
		at := t.ErrorAt(field, "%s", e.Message)
		if found != nil || at.Line == 0 {
			return nil // nobody knows which of several tasks it is
		}
		at.Hint, at.Class = e.Hint, e.Type
		found = at
	}
	return found
}

// configProblems lists what is wrong with a configuration; file stands for
// mistakes that name none.
func configProblems(file string, err error) []problem {
	e, ok := errors.AsType[*config.Error](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return []problem{{File: file, Severity: severityError, Message: err.Error()}}
	}
	out := make([]problem, len(e.Problems))
	for i, p := range e.Problems {
		out[i] = configProblem(file, severityError, p)
	}
	return out
}

func configProblem(file, severity string, p config.Problem) problem {
	return problem{
		File: cmp.Or(p.Origin.Source, file), Line: p.Origin.Line, Column: p.Origin.Column,
		Severity: severity, Field: p.Path, Message: p.Text, Hint: p.Hint,
	}
}

// text is the problem as compilers write theirs, with the line in question;
// style colours the severity.
func (p problem) text(style func(term.Style, string) string) string {
	var b strings.Builder
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
	color := term.Red
	if p.Severity == severityWarning {
		color = term.Yellow
	}
	b.WriteString(where + ": " + style(color, p.Severity+":") + " ")
	if p.about != "" {
		b.WriteString(p.about + ": ")
	}
	b.WriteString(p.Message + "\n" + p.snippet)
	if p.Hint != "" {
		b.WriteString("Hint: " + p.Hint + "\n")
	}
	return b.String()
}

// report shows a verdict and turns it into the command's outcome. kind is what
// the files are.
func (a *app) report(v verdict, kind string) error {
	if v.Problems == nil {
		v.Problems = []problem{}
	}
	done, err := a.emit(v)
	if err != nil {
		return err
	}
	if !done {
		for _, p := range v.Problems {
			a.t.Print(p.text(a.t.Style))
		}
		a.t.Note("%s", v.summary(kind))
	}
	if v.Wrong > 0 {
		return exitError(1)
	}
	return nil
}

// summary is the last line of a check.
func (v verdict) summary(kind string) string {
	files := count(v.Files, kind+" file")
	mistakes, warnings := 0, 0
	for _, p := range v.Problems {
		if p.Severity == severityError {
			mistakes++
		} else {
			warnings++
		}
	}
	also := ""
	if warnings > 0 {
		also = fmt.Sprintf(", %s", count(warnings, "warning"))
	}
	if v.Wrong == 0 {
		return files + " checked, no mistakes" + also
	}
	return fmt.Sprintf("%s checked, %d wrong: %s%s", files, v.Wrong, count(mistakes, "mistake"), also)
}

// count is "1 file", "2 files".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
