package execution

import (
	"fmt"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/storage/transfer"
)

// syncing shows how far the copy of files to the nodes of a cluster is: in one line for
// people, and to programs.
type syncing struct {
	out  cluster.Output
	what string

	mu    sync.Mutex
	nodes []filesync.Progress // by rank
	rate  transfer.Average
	shown time.Time // zero: never
}

// shownEvery is the least time between two lines.
const shownEvery = 500 * time.Millisecond

// saw notes how far a node is.
func (s *syncing) saw(rank int, p filesync.Progress) { s.sawAt(rank, p, time.Now()) }

func (s *syncing) sawAt(rank int, p filesync.Progress, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[rank] = p
	if s.shown.IsZero() {
		s.shown = now // what is over in a moment needs no line
	}
	took := now.Sub(s.shown)
	if took < shownEvery {
		return
	}
	s.shown = now
	far := api.TransferProgress{Operation: "sync", What: s.what}
	for _, n := range s.nodes {
		far.Files, far.TotalFiles = far.Files+int64(n.Sent), far.TotalFiles+int64(n.Wanted)
		far.Bytes, far.TotalBytes = far.Bytes+n.Done, far.TotalBytes+n.WantedBytes
	}
	s.rate.Add(far.Bytes, took.Seconds())
	far.Rate = max(0, s.rate.Rate()) // a node may begin again
	if far.TotalBytes == 0 {
		return
	}
	text := fmt.Sprintf("Syncing %s: %s of %s", s.what, diskspace.Bytes(far.Bytes), diskspace.Bytes(far.TotalBytes))
	if far.Rate > 0 {
		text += ", " + diskspace.Bytes(int64(far.Rate)) + "/s"
	}
	s.out.Spin(text)
	if to, ok := s.out.(interface{ Progress(api.TransferProgress) }); ok {
		to.Progress(far)
	}
}
