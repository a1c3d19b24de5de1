package filesync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// progressEvery is the time between calls of Options.Progress.
const progressEvery = 100 * time.Millisecond

// A meter counts what a Send does.
type meter struct {
	files, bytes             atomic.Int64 // at the source
	wantedFiles, wantedBytes atomic.Int64
	sentFiles, doneBytes     atomic.Int64 // answered; doneBytes counts what the receiver had, too
	matched                  atomic.Int64 // of the files: content was right
	travelled                atomic.Int64 // bytes of content
}

func (m *meter) found(files int, bytes int64) {
	m.files.Add(int64(files))
	m.bytes.Add(bytes)
}

func (m *meter) wanted(size int64) {
	m.wantedFiles.Add(1)
	m.wantedBytes.Add(size)
}

// answered counts a file that the receiver needs no more of.
func (m *meter) answered(bytes int64) {
	m.sentFiles.Add(1)
	m.doneBytes.Add(bytes)
}

func (m *meter) progress() Progress {
	return Progress{
		Files: int(m.files.Load()), Wanted: int(m.wantedFiles.Load()), Sent: int(m.sentFiles.Load()),
		Bytes: m.bytes.Load(), WantedBytes: m.wantedBytes.Load(), Done: m.doneBytes.Load(),
	}
}

func (m *meter) addTo(s *Stats) {
	s.Files = int(m.files.Load())
	s.Bytes = m.bytes.Load()
	s.Matched = int(m.matched.Load())
	s.Sent = int(m.sentFiles.Load() - m.matched.Load())
	s.SentBytes = m.travelled.Load()
}

// report calls f now and then until the returned function is called, which
// makes the last call.
func (m *meter) report(ctx context.Context, f func(Progress)) (stop func()) {
	if f == nil {
		return func() {}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f(m.progress())
			case <-quit:
				f(m.progress())
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}
