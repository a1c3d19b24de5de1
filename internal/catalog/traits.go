package catalog

import (
	"cmp"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// traits are the facts of the cloud that a price list is of.
type traits struct {
	name string
	facts.Prices
}

// traitsOf gives the facts of a cloud; an unknown one has the usual defaults.
func traitsOf(cloud string) traits {
	t := traits{name: cloud}
	if p := facts.Of(cloud).Prices; p != nil {
		t.Prices = *p
	}
	t.CPUs = cmp.Or(t.CPUs, 8)
	t.MemoryPerCPU = cmp.Or(t.MemoryPerCPU, 4)
	return t
}

// DisplayName is how tables show a cloud: "AWS" for "aws".
func DisplayName(cloud string) string { return facts.Of(cloud).Display }

// sizeFamilies are the first ones that an instance type belongs to; ok is false if it
// is not for requests of only a size.
func (t *traits) sizeFamilies(k *kind) (f Families, ok bool) {
	matches := func(r *lazyregexp.Regexp) bool { return r != nil && r.MatchString(k.instance) }
	switch {
	case t.Family == nil:
		return UsualFamilies, true
	case k.accelerators != nil || k.instance == "" || k.attached:
		return 0, false
	case matches(t.Family):
		return UsualFamilies, true
	case matches(t.Special):
		return 0, false
	case matches(t.Arm) || strings.HasPrefix(k.arch, "arm"):
		return AllFamilies, true
	}
	return UnusualFamilies, true
}

// sized fills in the default size where a query leaves it open.
func (t *traits) sized(q Query) Query {
	if t.AnySize || q.InstanceType != "" || q.Accelerator != "" {
		return q
	}
	if q.CPUs.Any() && q.Memory.Any() && !q.AnyCPUs && !q.AnyMemory {
		q.CPUs = Amount{N: t.CPUs, AtLeast: true}
	}
	if q.Memory.Any() && !q.AnyMemory {
		q.Memory = Amount{N: t.MemoryPerCPU, PerCPU: true}
	}
	return q
}
