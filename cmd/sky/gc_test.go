package main

import (
	"runtime"
	"testing"
	"time"
)

func TestGarbageThatPilesUp(t *testing.T) {
	for _, tt := range []struct{ live, least, most uint64 }{ // MiB of garbage
		{1, 15, 16}, {4, 14, 16}, {8, 12, 16}, {20, 16, 16}, {40, 16, 16}, {100, 40, 40}, {1000, 400, 400},
	} {
		got := tt.live * uint64(percentFor(tt.live<<20)) / 100
		if got < tt.least || got > tt.most {
			t.Errorf("%d MiB live: %d MiB of garbage, want %d to %d", tt.live, got, tt.least, tt.most)
		}
	}
	if p := percentFor(0); p < garbagePercent {
		t.Error(p)
	}
}

func TestAfterEachGC(t *testing.T) {
	called := make(chan struct{}, 100)
	afterEachGC(func() { called <- struct{}{} })
	deadline := time.After(5 * time.Minute)
	for range 3 {
		for again := true; again; {
			runtime.GC() // one that comes too soon after the last call finds nothing to tell of
			select {
			case <-called:
				again = false
			case <-time.After(10 * time.Millisecond):
			case <-deadline:
				t.Fatal("not called")
			}
		}
	}
}
