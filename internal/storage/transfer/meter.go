package transfer

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A meter counts what is moved and reports it now and then.
type meter struct {
	to                     func(Progress)
	files, moved           atomic.Int64
	totalFiles, totalBytes atomic.Int64
	counted                atomic.Bool
	done                   chan struct{}
	wg                     sync.WaitGroup
	byteRate, fileRate     Average
	last                   time.Time
}

// An Average is how much there is in a second; the last ten seconds count most.
type Average struct {
	rate float64
	seen int64
}

// Rate is how much there is in a second.
func (a *Average) Rate() float64 { return a.rate }

// Add says that there are n after so many seconds more.
func (a *Average) Add(n int64, seconds float64) {
	rate := float64(n-a.seen) / seconds
	if a.seen = n; a.rate == 0 {
		a.rate = rate
		return
	}
	keep := math.Exp(-seconds / 10)
	a.rate = keep*a.rate + (1-keep)*rate
}

// Left is how long n more take; 0: unknown.
func (a *Average) Left(n int64) time.Duration {
	if a.rate <= 0 || n <= 0 {
		return 0
	}
	return time.Duration(float64(n) / a.rate * float64(time.Second))
}

const reportEvery = 500 * time.Millisecond

func startMeter(to func(Progress)) *meter {
	m := &meter{to: to, done: make(chan struct{}), last: time.Now()}
	if to != nil {
		m.wg.Go(m.tell)
	}
	return m
}

func (m *meter) tell() {
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			m.report()
		case <-m.done:
			return
		}
	}
}

// report makes one report.
func (m *meter) report() {
	now := time.Now()
	p := Progress{
		Files: m.files.Load(), Bytes: m.moved.Load(), TotalFiles: m.totalFiles.Load(), TotalBytes: m.totalBytes.Load(), Counted: m.counted.Load(),
	}
	if took := now.Sub(m.last).Seconds(); took > 0 {
		m.byteRate.Add(p.Bytes, took)
		m.fileRate.Add(p.Files, took)
		m.last = now
	}
	p.Rate, p.FileRate = m.byteRate.Rate(), m.fileRate.Rate()
	switch {
	case !p.Counted:
	case p.TotalBytes > 0:
		p.Left = m.byteRate.Left(p.TotalBytes - p.Bytes)
	default: // nothing is moved where objects are deleted
		p.Left = m.fileRate.Left(p.TotalFiles - p.Files)
	}
	m.to(p)
}

// stop makes the last report.
func (m *meter) stop() {
	if m.to == nil {
		return
	}
	close(m.done)
	m.wg.Wait()
	m.report()
}

// saw adds to the totals.
func (m *meter) saw(bytes int64) {
	m.totalFiles.Add(1)
	m.totalBytes.Add(bytes)
}

func (m *meter) bytes(n int64) { m.moved.Add(n) }
func (m *meter) file()         { m.files.Add(1) }
