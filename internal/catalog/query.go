package catalog

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Query asks for offers. Zero fields ask for nothing.
type Query struct {
	InstanceType string
	CPUs         Amount // vCPUs
	Memory       Amount // GiB
	// Accelerator is matched whole, in any case; Count must be met exactly
	// (rented machines are sold with a fixed number), 0 is any.
	Accelerator string
	Count       float64
	// TPUNode asks for a TPU behind a host machine of its own, which is rented
	// with it.
	TPUNode bool
	Spot    bool
	// Regions and Zones are alternatives; empty means everywhere.
	Regions, Zones []string
	// EachZone asks for one offer per zone also where the cloud itself picks
	// the zone.
	EachZone bool
	// FastNetwork asks for machines with the fastest network of their cloud.
	// Price lists do not know it.
	FastNetwork bool
	DiskTier    string // low, medium, high, ultra, best
	DiskGB      int    // of the system disk
	LocalDisk   string // "nvme:100+", "ssd:375"
	MaxHourly   float64
	// AnyCPUs and AnyMemory leave open what is not asked for; else a request for only
	// a size gets the default of the cloud.
	AnyCPUs, AnyMemory bool
	// Families says which instance types a request for only a size may have.
	Families Families
}

// Families are instance types of a cloud; each includes the ones before it.
type Families int

const (
	UsualFamilies Families = iota
	UnusualFamilies
	AllFamilies // also those of other processors than x86
)

// Amount is how much of something is asked for: exactly N, at least N, or at
// least N per vCPU. The zero Amount asks for nothing.
type Amount struct {
	N       float64
	AtLeast bool
	PerCPU  bool // implies at least
}

// ParseAmount reads "8", "8+" or "4x".
func ParseAmount(s string) (Amount, error) {
	if s == "" {
		return Amount{}, nil
	}
	a := Amount{}
	num := s
	switch s[len(s)-1] {
	case '+':
		a.AtLeast, num = true, s[:len(s)-1]
	case 'x', 'X':
		a.PerCPU, num = true, s[:len(s)-1]
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return Amount{}, fmt.Errorf("%q is not a number, a number with + (at least) or with x (per vCPU)", s)
	}
	a.N = n
	return a, nil
}

// Any reports that nothing is asked for.
func (a Amount) Any() bool { return a == Amount{} }

// Fits reports whether a machine with v of it and that many vCPUs will do.
func (a Amount) Fits(v, cpus float64) bool {
	switch {
	case a.Any():
		return true
	case a.PerCPU:
		return v >= a.N*cpus
	case a.AtLeast:
		return v >= a.N
	default:
		return v == a.N
	}
}

// Least is Fits with an exact amount read as "at least".
func (a Amount) Least(v, cpus float64) bool {
	a.AtLeast = a.AtLeast || !a.PerCPU && a.N > 0
	return a.Fits(v, cpus)
}

func (a Amount) String() string {
	if a.Any() {
		return ""
	}
	n := strconv.FormatFloat(a.N, 'f', -1, 64)
	switch {
	case a.PerCPU:
		return n + "x"
	case a.AtLeast:
		return n + "+"
	}
	return n
}

// SameCount reports whether two accelerator counts mean the same. Fractions
// are stored rounded, so a hundredth is forgiven.
func SameCount(a, b float64) bool { return math.Abs(a-b) <= 0.01 }

// NameKind is a sort of name that users write and may misspell.
type NameKind string

const (
	RegionNames       NameKind = "region"
	ZoneNames         NameKind = "zone"
	InstanceNames     NameKind = "instance type"
	AcceleratorNames  NameKind = "accelerator"           // "A100"
	AcceleratorOffers NameKind = "accelerator and count" // "A100:8", cheapest first
	ImageTagNames     NameKind = "image tag"             // none: not known
)
