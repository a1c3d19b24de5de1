package execution

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/filesync"
)

// lines are what people and programs see of a transfer.
type lines struct {
	io.Writer
	people   []string
	programs []api.TransferProgress
}

func (l *lines) Spin(text string)                { l.people = append(l.people, text) }
func (l *lines) StopSpin()                       {}
func (l *lines) Progress(p api.TransferProgress) { l.programs = append(l.programs, p) }

// A copy to the nodes is one line for all of them, which changes twice a second; one that
// takes a moment has none.
func TestHowFarACopyToNodesIs(t *testing.T) {
	out := &lines{Writer: io.Discard}
	s := &syncing{out: out, what: "workdir: a -> b", nodes: make([]filesync.Progress, 2)}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int, rank int, done int64) {
		s.sawAt(rank, filesync.Progress{Wanted: 2, Sent: int(done >> 28), WantedBytes: 1 << 30, Done: done}, began.Add(time.Duration(ms)*time.Millisecond))
	}
	at(0, 0, 0)
	at(100, 1, 64<<20)
	at(400, 0, 128<<20)
	if len(out.people)+len(out.programs) > 0 {
		t.Errorf("after 400 ms: %v", out.people)
	}
	at(500, 0, 192<<20)
	at(600, 1, 512<<20)
	at(1500, 1, 768<<20)
	at(2500, 0, 0) // its connection was lost, and it begins again
	if want := []string{
		"Syncing workdir: a -> b: 256 MB of 2048 MB, 512 MB/s",
		"Syncing workdir: a -> b: 960 MB of 2048 MB, 530 MB/s",
		"Syncing workdir: a -> b: 768 MB of 2048 MB, 461 MB/s",
	}; !slices.Equal(out.people, want) {
		t.Errorf("people read %q", out.people)
	}
	if p := out.programs[1]; len(out.programs) != 3 || p.Operation != "sync" || p.Bytes != 960<<20 || p.TotalBytes != 2<<30 || p.TotalFiles != 4 || p.Counted {
		t.Errorf("programs read %+v", out.programs)
	}
	s = &syncing{out: out, what: "workdir: a -> b", nodes: make([]filesync.Progress, 1)} // nothing is wanted
	s.sawAt(0, filesync.Progress{}, began)
	s.sawAt(0, filesync.Progress{}, began.Add(time.Minute))
	if len(out.people) != 3 {
		t.Errorf("of nothing people read %q", out.people[3:])
	}
}
