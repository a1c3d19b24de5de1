package cloud

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// NVIDIAAccelerators counts the GPUs of one machine by the name that tasks use.
// It reads what nvidia-smi prints for --query-gpu=name,memory.total as CSV
// without header and units. Of several kinds the most numerous counts.
func NVIDIAAccelerators(csv string) map[string]float64 {
	counts := map[string]float64{}
	best := ""
	for line := range strings.Lines(csv) {
		name, mem, _ := strings.Cut(strings.TrimSpace(line), ",")
		if name == "" {
			continue
		}
		var mib float64
		fmt.Sscan(strings.TrimSpace(mem), &mib)
		n := nvidiaName(name, mib/1024)
		counts[n]++
		if best == "" || counts[n] > counts[best] {
			best = n
		}
	}
	if best == "" {
		return nil
	}
	return map[string]float64{best: counts[best]}
}

var (
	brandWords = lazyregexp.New(`(?i)^(NVIDIA|Tesla|Quadro|GeForce)\s+`)
	variant    = lazyregexp.New(`(?i)[- ](SXM\d*|PCIE|PCI-E|HBM\d*e?|NVL|\d+GB|\d+G)\b`)
)

// nvidiaName turns what the driver says into the name catalogs use:
// "NVIDIA A100-SXM4-80GB" is A100-80GB, "NVIDIA GeForce RTX 4090" RTX4090.
func nvidiaName(driver string, gib float64) string {
	n := strings.TrimSpace(driver)
	for brandWords.MatchString(n) {
		n = brandWords.ReplaceAllString(n, "")
	}
	for variant.MatchString(n) {
		n = variant.ReplaceAllString(n, "")
	}
	n = strings.ReplaceAll(n, " ", "")
	// Two models come in two sizes that catalogs tell apart.
	switch {
	case n == "A100" && gib > 60:
		return "A100-80GB"
	case n == "V100" && gib > 24:
		return "V100-32GB"
	}
	return n
}
