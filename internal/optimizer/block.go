package optimizer

import (
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// Block is what a plan must not use; provisioning rules out in the same words.
type Block = cloud.Block

// excludedBy is the pattern of the task's blocked_resources that matches an offer; nil:
// none does.
func excludedBy(t *task.Task, o *cloud.Offer) *task.Blocked {
	for i := range t.Blocked {
		x := &t.Blocked[i]
		same := func(pattern, is string) bool { return pattern == "" || strings.EqualFold(pattern, is) }
		if same(x.Cloud, o.Cloud) && same(x.Region, o.Region) && same(x.Zone, o.Zone) && same(x.InstanceType, o.InstanceType) &&
			(x.UseSpot == nil || *x.UseSpot == o.Spot) && (x.Accelerators == nil || hasAccelerators(o, x.Accelerators)) {
			return x
		}
	}
	return nil
}

func hasAccelerators(o *cloud.Offer, a *task.Accelerator) bool {
	for name, n := range o.Accelerators {
		if strings.EqualFold(name, a.Name) && (a.Count == 0 || catalog.SameCount(n, a.Count)) {
			return true
		}
	}
	return false
}

func blocked(blocks []Block, o *cloud.Offer) bool {
	for i := range blocks {
		if blocks[i].Matches(o) {
			return true
		}
	}
	return false
}
