package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// thisMachine finds out once what this machine has.
var thisMachine = sync.OnceValue(func() cloud.Offer {
	return cloud.Offer{
		Place:        cloud.Place{Cloud: Name},
		InstanceType: InstanceType,
		CPUs:         float64(runtime.NumCPU()),
		MemoryGiB:    memoryGiB(),
		Accelerators: nvidiaGPUs(),
	}
})

// memoryGiB is this machine's memory; 0 if it cannot be told.
func memoryGiB() float64 {
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb float64
		for line := range strings.Lines(string(b)) {
			if _, err := fmt.Sscanf(line, "MemTotal: %f kB", &kb); err == nil {
				return float64(int(kb/1024/1024*10)) / 10
			}
		}
	}
	if out, err := run("sysctl", "-n", "hw.memsize"); err == nil {
		var n float64
		if _, err := fmt.Sscan(out, &n); err == nil {
			return n / (1 << 30)
		}
	}
	return 0
}

// nvidiaGPUs are this machine's GPUs.
func nvidiaGPUs() map[string]float64 {
	out, err := run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
	if err != nil {
		return nil
	}
	return cloud.NVIDIAAccelerators(out)
}

func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return string(out), err
}
