//go:build linux

package local

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestTheOfferIsThisMachine(t *testing.T) {
	offers, err := New(Options{}).Offers(t.Context())
	if err != nil || len(offers) != 1 {
		t.Fatalf("%v, %v", offers, err)
	}
	o := offers[0]
	if o.Cloud != Name || o.InstanceType != InstanceType || o.CPUs != float64(runtime.NumCPU()) || o.HourlyPrice != 0 {
		t.Errorf("%+v", o)
	}
	if o.MemoryGiB < 0.1 || o.MemoryGiB > 1<<20 {
		t.Errorf("%v GiB of memory", o.MemoryGiB)
	}
}

func TestGPUsAreThoseOfTheDriver(t *testing.T) {
	for _, tt := range []struct {
		name, driver string
		want         float64 // H100s
	}{
		{"two", "#!/bin/sh\n[ \"$1\" = --query-gpu=name,memory.total ] || exit 1\n" +
			"echo 'NVIDIA H100 80GB HBM3, 81559'\necho 'NVIDIA H100 80GB HBM3, 81559'\n", 2},
		{"a driver that fails", "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559'; exit 9\n", 0},
		{"no driver", "", 0},
	} {
		bin := t.TempDir()
		if tt.driver != "" {
			if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(tt.driver), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", bin)
		got := nvidiaGPUs()
		if sum := got["H100"]; sum != tt.want || (tt.want == 0) != (len(got) == 0) {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
