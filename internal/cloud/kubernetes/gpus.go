package kubernetes

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Resources by which devices are counted.
const (
	nvidiaKey = "nvidia.com/gpu"
	amdKey    = "amd.com/gpu"
	tpuKey    = "google.com/tpu"
)

var deviceKeys = []string{nvidiaKey, amdKey, tpuKey}

// formatter is one way in which clusters label their nodes with the kind of
// accelerator.
type formatter struct {
	name string
	keys []string
	// read turns a label's value into the name that tasks use; "" if the value
	// says nothing.
	read func(value string) string
	// write turns a name into the value that new nodes will have, for
	// autoscalers; nil where many values stand for one name.
	write func(name string) string
}

const (
	skyKey       = "skypilot.co/accelerator"
	gkeKey       = "cloud.google.com/gke-accelerator"
	gkeTPUKey    = "cloud.google.com/gke-tpu-accelerator"
	gkeTopology  = "cloud.google.com/gke-tpu-topology"
	gkeSpotKey   = "cloud.google.com/gke-spot"
	gkeFlexKey   = "cloud.google.com/gke-flex-start"
	karpenterKey = "karpenter.k8s.aws/instance-gpu-name"
	nvidiaName   = "nvidia.com/gpu.product"
	coreweaveKey = "gpu.nvidia.com/class"
	nebiusKey    = "nebius.com/gpu-name"
)

// formatters are tried in this order: the first whose label says something on
// any node is the cluster's.
var formatters = []formatter{
	{"SkyPilot", []string{skyKey}, ifLower(strings.ToUpper), strings.ToLower},
	{"GKE", []string{gkeKey, gkeTPUKey}, fromGKE, toGKE},
	{"Karpenter", []string{karpenterKey}, ifLower(strings.ToUpper), strings.ToLower},
	{"NVIDIA", []string{nvidiaName}, fromNVIDIA, nil},
	{"CoreWeave", []string{coreweaveKey}, fromCoreWeave, strings.ToUpper},
	{"Nebius", []string{nebiusKey}, ifUpper, strings.ToUpper},
}

func ifLower(f func(string) string) func(string) string {
	return func(v string) string {
		if v != strings.ToLower(v) {
			return ""
		}
		return f(v)
	}
}

func ifUpper(v string) string {
	if v != strings.ToUpper(v) {
		return ""
	}
	return v
}

// newGKE are the models whose label on GKE begins with nvidia-, not
// nvidia-tesla-.
var newGKE = []string{"A100-80GB", "L4", "H100-80GB", "H100-MEGA-80GB", "B200"}

func toGKE(name string) string {
	upper := strings.ToUpper(name)
	switch {
	case strings.HasPrefix(name, "tpu-"), strings.HasPrefix(name, "amd-"):
		return name
	case upper == "H100":
		return "nvidia-h100-80gb"
	case upper == "H200":
		return "nvidia-h200-141gb"
	case slices.Contains(newGKE, upper):
		return "nvidia-" + strings.ToLower(name)
	}
	return "nvidia-tesla-" + strings.ToLower(name)
}

func fromGKE(v string) string {
	switch {
	case strings.HasPrefix(v, "tpu-"), strings.HasPrefix(v, "amd-"):
		return v
	case v == "nvidia-h100-80gb":
		return "H100"
	case v == "nvidia-h200-141gb":
		return "H200"
	case strings.HasPrefix(v, "nvidia-tesla-"):
		return strings.ToUpper(strings.TrimPrefix(v, "nvidia-tesla-"))
	case strings.HasPrefix(v, "nvidia-"):
		return strings.ToUpper(strings.TrimPrefix(v, "nvidia-"))
	}
	return ""
}

// canonical are the models as tasks call them; what holds another comes first.
var canonical = []string{
	"GB300", "GB200", "B300", "B200", "B100", "GH200", "H200", "H100-80GB", "H100-MEGA", "H100", "A100-80GB", "A100", "A10G", "A10",
	"A16", "A30", "A40", "RTX6000-Ada", "L40S", "L40", "L4", "A6000", "A5000", "A4000", "V100-32GB", "V100", "P100", "P40", "P4000", "P4",
	"T4g", "T4", "K80", "M60",
}

var (
	big80 = lazyregexp.New(`(?i)(A100|H100).*-80GB`)
)

// fromNVIDIA reads the labels of NVIDIA's own discovery, such as
// NVIDIA-A100-SXM4-80GB.
func fromNVIDIA(v string) string {
	if v == "" {
		return ""
	}
	if m := big80.FindStringSubmatch(v); m != nil {
		if strings.EqualFold(m[1], "A100") {
			return "A100-80GB"
		}
		return "H100"
	}
	for _, name := range canonical {
		if hasWord(v, name) {
			return name
		}
	}
	n := strings.ToUpper(v)
	n = strings.ReplaceAll(n, "NVIDIA-", "")
	n = strings.ReplaceAll(n, "GEFORCE-", "")
	return strings.ReplaceAll(n, "RTX-", "RTX")
}

// hasWord reports whether name is in v with no letter or digit beside it.
func hasWord(v, name string) bool {
	v, name = strings.ToUpper(v), strings.ToUpper(name)
	for from := 0; ; {
		i := strings.Index(v[from:], name)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		if (i == 0 || !wordByte(v[i-1])) && (end == len(v) || !wordByte(v[end])) {
			return true
		}
		from = i + 1
	}
}

func wordByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b == '_'
}

func fromCoreWeave(v string) string {
	v = strings.ToUpper(v)
	if v == "H100_NVLINK_80GB" {
		return "H100"
	}
	return v
}

// formatterOf finds out how a cluster labels its nodes.
func formatterOf(nodes []node) *formatter {
	for i := range formatters {
		f := &formatters[i]
		for j := range nodes {
			if _, _, name := f.of(&nodes[j]); name != "" {
				return f
			}
		}
	}
	return nil
}

// of is what the labels of a node say in this format.
func (f *formatter) of(n *node) (key, value, name string) {
	for _, key := range f.keys {
		if value := n.Metadata.Labels[key]; value != "" {
			if name := f.read(value); name != "" {
				return key, value, name
			}
		}
	}
	return "", "", ""
}

// sameAccelerator reports whether a node's accelerator will do for the one that
// was asked for: equal in any case, or one begins the other. What is known to
// have less memory never does.
func sameAccelerator(asked, have string) bool {
	a, h := strings.ToLower(asked), strings.ToLower(have)
	if a == h {
		return true
	}
	if !strings.HasPrefix(a, h+"-") && !strings.HasPrefix(h, a+"-") {
		return false
	}
	am, hm := memoryOf(a), memoryOf(h)
	return am == 0 || hm == 0 || hm >= am
}

// deviceMemory is what is known of accelerators' memory in GB.
var deviceMemory = map[string]float64{
	"a10": 24, "a10g": 24, "l4": 24, "a40": 48, "a6000": 48, "l40": 48, "l40s": 48, "rtx6000-ada": 48, "a100": 40, "a100-80gb": 80,
	"h100": 80, "h100-80gb": 80, "h100-mega": 80, "t4": 16, "t4g": 16, "v100": 16, "v100-32gb": 32, "p100": 16, "k80": 12, "m60": 8, "p4": 8,
	"b200": 180, "h200": 141, "gh200": 96, "rtxa6000": 48, "rtx3090": 24, "rtx4090": 24, "mi300x": 192,
}

func memoryOf(name string) float64 { return deviceMemory[name] }

// deviceKey is the resource by which an accelerator is asked for.
func deviceKey(name string) string {
	lower := strings.ToLower(name)
	switch {
	case strings.HasPrefix(lower, "tpu-"):
		return tpuKey
	case strings.HasPrefix(lower, "amd-"), strings.HasPrefix(lower, "mi2"), strings.HasPrefix(lower, "mi3"):
		return amdKey
	}
	return nvidiaKey
}

// topologies are the layouts of TPU slices that fit one host.
var topologies = map[string]map[int]string{
	"tpu-v5-lite-podslice": {1: "1x1", 4: "2x2", 8: "2x4"},
	"tpu-v5-lite-device":   {1: "1x1", 4: "2x2", 8: "2x4"},
	"tpu-v6e-slice":        {1: "1x1", 4: "2x2", 8: "2x4"},
	"tpu-v5p-slice":        {4: "2x2x1"},
}
