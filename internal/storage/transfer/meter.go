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
	rate                   float64
	lastBytes              int64
	last                   time.Time
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

// report makes one report. The rate is an average in which the last ten seconds
// count most.
func (m *meter) report() {
	now, bytes := time.Now(), m.moved.Load()
	p := Progress{
		Files: m.files.Load(), Bytes: bytes, TotalFiles: m.totalFiles.Load(), TotalBytes: m.totalBytes.Load(), Counted: m.counted.Load(),
	}
	if took := now.Sub(m.last).Seconds(); took > 0 {
		rate := float64(bytes-m.lastBytes) / took
		if m.rate == 0 {
			m.rate = rate
		} else {
			keep := math.Exp(-took / 10)
			m.rate = keep*m.rate + (1-keep)*rate
		}
		m.last, m.lastBytes = now, bytes
	}
	p.Rate = m.rate
	if left := p.TotalBytes - bytes; p.Counted && m.rate > 0 && left > 0 {
		p.Left = time.Duration(float64(left) / m.rate * float64(time.Second))
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
