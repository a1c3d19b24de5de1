package upload

import (
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/filesync"
)

func TestSummary(t *testing.T) {
	for want, s := range map[string]filesync.Stats{
		"3 files, all there already":                  {Files: 3},
		"3 files, 1 sent":                             {Files: 3, Sent: 1},
		"1 file, 1 sent":                              {Files: 1, Sent: 1},
		"3 files, all there already, 2 removed":       {Files: 3, Removed: 2},
		"0 files":                                     {},
		"2 files, 1 sent; 7 left out by ignore files": {Files: 2, Sent: 1, Left: filesync.Left{Ignored: 7}},
		"0 files; 1 left out by ignore files":         {Left: filesync.Left{Ignored: 1}},
		"1 file, 1 sent; 2 left out by ignore files; 1 socket, pipe or device left out": {Files: 1, Sent: 1, Left: filesync.Left{Ignored: 2, Special: 1}},
	} {
		if got := Summary(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  filesync.Left
		files int
		want  []string
	}{
		{"nothing to say", filesync.Left{Ignored: 3}, 1, nil},
		{"an empty folder", filesync.Left{}, 0, nil},
		{"state", filesync.Left{State: []string{".sky", "b/.sky"}}, 1, []string{"Left out of ~: .sky, b/.sky. sky's own state (keys, tokens, its database) is never copied."}},
		{"all ignored", filesync.Left{Ignored: 3}, 0, []string{"Warning: nothing of ~ is copied, since its ignore files (.skyignore or git's) leave out everything that is in it."}},
		{"a dangling link", filesync.Left{Dangles: 1, Dangling: []string{"l"}}, 1, []string{"1 link of ~ leads to nothing and is copied as it is: l."}},
		{"more of them", filesync.Left{Dangles: 9, Dangling: []string{"a", "b"}}, 9, []string{"9 links of ~ lead to nothing and are copied as they are: a, b and 7 more."}},
	} {
		if got := Notes(filesync.Local("~"), c.left, c.files); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// Where files are only uploaded, or copied for a managed job, no summary says what was
// left out.
func TestNotesBeforeACopySayWhatIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  filesync.Left
		files int
		want  []string
	}{
		{"nothing", filesync.Left{}, 1, nil},
		{"some", filesync.Left{Ignored: 3, Special: 2}, 1, []string{"Of ~: 3 left out by ignore files; 2 sockets, pipes or devices left out."}},
		{"all", filesync.Left{Ignored: 1}, 0, []string{"Of ~: 1 left out by ignore files.", "Warning: nothing of ~ is copied, since its ignore files (.skyignore or git's) leave out everything that is in it."}},
	} {
		if got := NotesBefore(filesync.Local("~"), c.left, c.files); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
