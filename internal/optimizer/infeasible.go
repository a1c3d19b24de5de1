package optimizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Constraint is the one thing that keeps a request from being satisfied.
type Constraint string

const (
	NotEnabled    Constraint = "not enabled"
	Feature       Constraint = "feature"
	RuledOut      Constraint = "ruled out" // offers fit, but all are blocked
	InstanceType  Constraint = "instance_type"
	AccelName     Constraint = "accelerators"
	AccelCount    Constraint = "accelerator count"
	CPUs          Constraint = "cpus"
	Memory        Constraint = "memory"
	Region        Constraint = "region"
	Zone          Constraint = "zone"
	SpotOnly      Constraint = "use_spot"
	DiskTier      Constraint = "disk_tier"
	DiskSize      Constraint = "disk_size"
	LocalDisk     Constraint = "local_disk"
	MaxHourlyCost Constraint = "max_hourly_cost"
)

// Exclusion says why one cloud cannot serve one request.
type Exclusion struct {
	Cloud, DisplayName string
	Request            string // as written, short
	Constraint         Constraint
	Reason             string // a sentence part for users
	// Nearest is the offer that would fit if the constraint were changed, and
	// Change how to ask for it; nil where nothing is near.
	Nearest  *cloud.Offer
	Change   string
	gap      float64 // of Nearest to what was asked
	unpriced bool
}

// NoFeasibleError means that nothing that is enabled can run a task. API
// clients know it as ResourcesUnavailableError with an empty failover history.
type NoFeasibleError struct {
	Task     string
	Nodes    int
	Requests []string
	// Clouds has one entry per request and cloud that was considered.
	Clouds []Exclusion
	// Similar are accelerators with their counts that resemble the one asked for.
	Similar []string
}

func (e *NoFeasibleError) Error() string {
	var b strings.Builder
	b.WriteString("no enabled infrastructure can run ")
	if e.Task != "" {
		fmt.Fprintf(&b, "task %q: ", e.Task)
	}
	fmt.Fprintf(&b, "%dx %s", max(e.Nodes, 1), strings.Join(e.Requests, " or "))
	width := 0
	for _, x := range e.Clouds {
		width = max(width, len(x.DisplayName))
	}
	for _, x := range e.Clouds {
		fmt.Fprintf(&b, "\n  %-*s  %s", width, x.DisplayName, x.Reason)
		if len(e.Requests) > 1 {
			fmt.Fprintf(&b, " (%s)", x.Request)
		}
	}
	if near := e.nearest(); len(near) > 0 {
		b.WriteString("\nThese would fit:")
		for _, x := range near {
			price := fmt.Sprintf("$%.2f per hour", x.Nearest.HourlyPrice)
			if x.unpriced {
				price = "price unknown"
			}
			fmt.Fprintf(&b, "\n  %s (%s in %s, %s)", x.Change, x.Nearest.InstanceType, x.Nearest.Place, price)
		}
	}
	if len(e.Similar) > 0 {
		fmt.Fprintf(&b, "\nSimilar accelerators on offer: %s", strings.Join(e.Similar, ", "))
	}
	b.WriteString("\nSee what there is: sky gpus list --all. See what is enabled: sky check.")
	return b.String()
}

// nearest picks the few requests that would fit and are nearest to what was
// asked, one per change.
func (e *NoFeasibleError) nearest() []Exclusion {
	var near []Exclusion
	for _, x := range e.Clouds {
		if x.Nearest == nil {
			continue
		}
		i := slices.IndexFunc(near, func(n Exclusion) bool { return n.Change == x.Change })
		switch {
		case i < 0:
			near = append(near, x)
		case nearer(&x, &near[i]) < 0:
			near[i] = x
		}
	}
	slices.SortStableFunc(near, func(a, b Exclusion) int { return nearer(&a, &b) })
	return near[:min(len(near), 3)]
}

func nearer(a, b *Exclusion) int {
	return cmp.Or(compareBool(a.unpriced, b.unpriced), cmp.Compare(a.gap, b.gap), cmp.Compare(a.Nearest.HourlyPrice, b.Nearest.HourlyPrice))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
