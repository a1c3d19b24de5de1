package facts

import (
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Prices are the facts of a cloud that decide how its price list is read and which
// of its rows answer a request that leaves things open.
type Prices struct {
	// Hosted: its list is published, so plans can be made over it by anybody.
	Hosted bool
	// Refresh is how often the published list changes; 0: never.
	Refresh time.Duration
	// Beside are files that are published beside the list.
	Beside []string
	// Columns are those that only this cloud's list has.
	Columns []Column

	// Family matches the instance types to prefer when only a size is asked for.
	// Nil: all alike. Of the rest, those that match Arm come last, since programs and
	// images are made for x86 as a rule, and those that match Special are for
	// requests that name them.
	Family, Arm, Special *lazyregexp.Regexp
	// CPUs is the size for a request that asks for none (0: 8); MemoryPerCPU is GiB per
	// vCPU (0: 4).
	CPUs, MemoryPerCPU float64
	// AnySize: there is no default size.
	AnySize bool
	// EachZone: machines are rented in a zone, not in a region.
	EachZone bool
	// Attached: accelerators are rows of their own and are attached to hosts.
	Attached bool
	// ZoneIDs: the list names zones by ids, which accounts see under other names.
	ZoneIDs bool
	// RegionClass puts regions with a lower number before others, whatever they
	// cost. Nil: all alike.
	RegionClass func(region string) int
	// Disk reports whether disks of a tier can be had with an instance type. Nil: yes.
	Disk func(instance, tier string) bool
	// MinDisk and MaxDisk bound the system disk, in GB; 0: unbounded.
	MinDisk, MaxDisk int
}

// Column is a column of some clouds' price lists only.
type Column string

const (
	Generation     Column = "Generation"
	Arch           Column = "Arch"
	LocalDiskType  Column = "LocalDiskType"
	NVMe           Column = "NVMeSupported"
	LocalDiskSize  Column = "LocalDiskSize"
	LocalDiskCount Column = "LocalDiskCount"
	HostingType    Column = "HostingType"
)

// Files that may stand beside a price list.
const (
	Images            = "images.csv"
	InstanceQuotas    = "instance_quota_mapping.csv"
	AcceleratorQuotas = "accelerator_quota_mapping.csv"
)

func usFirst(region string) int {
	if strings.HasPrefix(region, "us-") {
		return 0
	}
	return 1
}
