package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage the API server lets pile up. It mostly holds many small things
// for long, and memory is what limits how many: 40% of what lives. While little
// lives that would be a collection after every few answers, so it is never less
// than some bytes.
const (
	garbagePercent = 40
	garbageBytes   = 16 << 20
)

// paceGC makes the collector keep to that from now on.
func paceGC() {
	now := garbagePercent
	debug.SetGCPercent(now)
	afterEachGC(func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if p := percentFor(live[0].Value.Uint64()); p != now {
			now = p
			debug.SetGCPercent(p)
		}
	})
}

// percentFor is the percentage of what lives that may be garbage, in steps, so
// that it seldom changes: to change it stops everything for a moment.
func percentFor(live uint64) int {
	p := int(garbageBytes * 100 / max(live, 1<<20))
	return max(garbagePercent, p/garbagePercent*garbagePercent)
}

// afterEachGC calls f after every collection, one call at a time.
func afterEachGC(f func()) {
	sentinel := new(struct{ _ *byte }) // with a pointer, or it would share its block with others
	runtime.AddCleanup(sentinel, func(f func()) {
		f()
		afterEachGC(f)
	}, f)
}
