package catalog

import (
	"math"
	"time"
)

// Table is one cloud's price list. It never changes after loading, so any
// number of readers may share it.
//
// Rows are columns of small numbers. All rows of a [kind] lie together, in the
// order in which places are tried when paying the ordinary price.
type Table struct {
	traits traits
	kinds  []kind

	region, zone []uint16 // indices into regions, zones; zone 0 is ""
	price, spot  []float64
	seq          []uint32 // place in the file
	// regionHead marks the first, and so cheapest, row of its region.
	regionHead []bool
	// bySpot lists the rows of each kind that have a spot price, cheapest first.
	bySpot []uint32

	regions, zones []string
	// kindsOf lists kinds by accelerator name, lower case; byInstance by
	// instance type; sizes are the kinds for requests of only a size.
	kindsOf    map[string][]int32
	byInstance map[string][]int32
	sizes      [AllFamilies + 1][]int32

	instanceNames, acceleratorNames, acceleratorOffers []string

	// Images is the cloud's images.csv; nil if it has none.
	Images *Images
	// Report reports how loading went.
	Report Report
}

// kind is an instance type together with its accelerators.
type kind struct {
	instance     string
	accelerator  string
	accelerators map[string]float64 // shared by all offers
	count        float64
	cpus, memory float64 // 0: unknown
	assumed      bool    // cpus and memory are not in the list but likely
	deviceMiB    float64 // memory of one device; 0: unknown
	listed       bool    // shown among GPUs
	attached     bool    // accelerators are put into a host of any fitting size
	tpuNode      bool    // TPU behind a host
	defaultCPUs  float64 // least vCPUs of the host when none are asked for
	arch         string
	localDiskGB  float64
	localDisk    string // nvme, ssd, hdd

	rows, spots       span
	minPrice, minSpot float64
}

type span struct{ from, to uint32 }

// Report reports how loading a price list went.
type Report struct {
	File     string
	Modified time.Time // of the file
	Rows     int       // that can be rented
	Unpriced int       // rows without a price and without a spot price
	Skipped  int       // malformed rows
	// Problems are the first few malformed rows.
	Problems []RowProblem
}

// RowProblem is a malformed row.
type RowProblem struct {
	Line   int
	Reason string
}

const maxProblems = 20

var none = math.NaN()

// Cloud is the name of the cloud whose list this is.
func (t *Table) Cloud() string { return t.traits.name }

// Name is the cloud's name in task files.
func (t *Table) Name() string { return t.traits.name }

// DisplayName is how tables show the cloud.
func (t *Table) DisplayName() string { return DisplayName(t.traits.name) }

// Names lists what the cloud has of a kind of name. The caller may not change
// the list.
func (t *Table) Names(k NameKind) []string {
	switch k {
	case RegionNames:
		return t.regions
	case ZoneNames:
		return t.zones[1:]
	case InstanceNames:
		return t.instanceNames
	case AcceleratorNames:
		return t.acceleratorNames
	case AcceleratorOffers:
		return t.acceleratorOffers
	case ImageTagNames:
		return t.Images.Tags()
	}
	return nil
}
