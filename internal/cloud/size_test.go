package cloud_test

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]cloud.Size{
		"4CPU--16GB":                   {CPUs: 4, MemoryGiB: 16},
		"0.5CPU--1.5GB":                {CPUs: 0.5, MemoryGiB: 1.5},
		"8CPU--32GB--H100:2":           {CPUs: 8, MemoryGiB: 32, Accelerator: "H100", Accelerators: 2},
		"8CPU--32GB--A100-80GB:0.5":    {CPUs: 8, MemoryGiB: 32, Accelerator: "A100-80GB", Accelerators: 0.5},
		"8CPU--32GB--tpu-v5-lite.x:16": {CPUs: 8, MemoryGiB: 32, Accelerator: "tpu-v5-lite.x", Accelerators: 16},
	} {
		if got, ok := cloud.ParseSize(text); !ok || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v, %s", text, got, ok, got)
		}
	}
	for _, text := range []string{"", "4CPU", "4CPU-16GB", "CPU--16GB", "4CPU--16GB--", "4CPU--16GB--H100", "4CPU--16GB--H100:", "4CPU--16GB--H100:2 ", "-4CPU--16GB"} {
		if got, ok := cloud.ParseSize(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
