package folder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Share is the part of a machine that a cluster has beside others.
type Share struct {
	CPUs        float64 `json:"cpus"`
	MemoryGiB   float64 `json:"memory_gib"`
	Accelerator string  `json:"accelerator,omitempty"`
	GPUs        []int   `json:"gpus,omitempty"` // by their index on the machine
	// Ports are those that the cluster listens on, as "8080" or "8000-8010".
	Ports []string `json:"ports,omitempty"`
}

// Devices are the indexes of its GPUs with commas.
func (s *Share) Devices() string {
	out := make([]string, len(s.GPUs))
	for i, g := range s.GPUs {
		out[i] = strconv.Itoa(g)
	}
	return strings.Join(out, ",")
}

// ShareOf reads the share of the node in dir; nil: it has the machine to itself, or dir
// is no node's folder.
func ShareOf(dir string) *Share {
	if dir == "" {
		return nil
	}
	for _, name := range []string{Record, Leaving} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		var r struct {
			Share *Share `json:"share"`
		}
		if json.Unmarshal(b, &r) == nil {
			return r.Share
		}
	}
	return nil
}
