package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Options change what a price list says.
type Options struct {
	// ZoneNames translates zone ids of AWS ("use1-az1") into the account's own
	// names; rows of other zones are dropped. Nil keeps the ids.
	ZoneNames map[string]string
	// Overlay is read after the list: its rows replace rows of the same
	// instance type, accelerator, region and zone, and are added otherwise.
	Overlay []byte
	// Prices change single prices.
	Prices []PriceOverride
	// Discount is what part of every price need not be paid: 0.1 is 10% off.
	Discount float64
}

// PriceOverride sets the price of an instance type ($ per hour) everywhere or
// in one region. A nil price stays as it is.
type PriceOverride struct {
	InstanceType string
	Region       string
	Price        *float64
	SpotPrice    *float64
}

// Load reads a cloud's vms.csv, of any schema from v5 to v8. Malformed rows
// are skipped and counted in the Report; a file without the needed columns is
// an error.
func Load(cloud string, text []byte, o Options) (*Table, error) {
	b := newBuilder(traitsOf(strings.ToLower(cloud)), o)
	if err := b.read(text, false); err != nil {
		return nil, err
	}
	if len(o.Overlay) > 0 {
		if err := b.read(o.Overlay, true); err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
	}
	return b.table(), nil
}

// builder collects rows kind by kind.
type builder struct {
	t       *Table
	o       Options
	kindIDs map[string]int32
	kinds   []kind
	rows    [][]row // by kind
	seq     uint32
	regions interner
	zones   interner
	names   map[string]string
	accMaps map[string]map[string]float64
}

type row struct {
	region, zone uint16
	price, spot  float64
	seq          uint32 // place in the file
}

type interner struct {
	ids  map[string]uint16
	list []string
}

var errTooManyNames = errors.New("more than 65535 different regions or zones")

func (n *interner) id(b []byte) (uint16, error) {
	if id, ok := n.ids[string(b)]; ok {
		return id, nil
	}
	if len(n.list) > math.MaxUint16 {
		return 0, errTooManyNames
	}
	s, id := string(b), uint16(len(n.list))
	n.ids[s] = id
	n.list = append(n.list, s)
	return id, nil
}

func newBuilder(tr traits, o Options) *builder {
	b := &builder{t: &Table{traits: tr}, o: o, kindIDs: map[string]int32{}, names: map[string]string{}, accMaps: map[string]map[string]float64{}}
	b.regions.ids, b.zones.ids = map[string]uint16{}, map[string]uint16{}
	b.zones.id(nil)
	return b
}

// columns are where the fields of a row stand; -1: absent.
type columns struct {
	instance, accelerator, count, cpus, memory, gpu, price, spot, region, zone int
	arch, diskType, nvme, diskSize, diskCount                                  int
}

func readHeader(fields [][]byte) (columns, error) {
	at := func(name string) int {
		return slices.IndexFunc(fields, func(f []byte) bool { return strings.EqualFold(strings.TrimSpace(string(f)), name) })
	}
	c := columns{instance: at("InstanceType"), accelerator: at("AcceleratorName"), count: at("AcceleratorCount"), cpus: at("vCPUs"), memory: at("MemoryGiB"),
		gpu: at("GpuInfo"), price: at("Price"), spot: at("SpotPrice"), region: at("Region"), zone: at("AvailabilityZone"),
		arch: at("Arch"), diskType: at("LocalDiskType"), nvme: at("NVMeSupported"), diskSize: at("LocalDiskSize"), diskCount: at("LocalDiskCount")}
	for name, i := range map[string]int{"InstanceType": c.instance, "Price": c.price, "Region": c.region} {
		if i < 0 {
			return c, fmt.Errorf("no column %s in the first line", name)
		}
	}
	return c, nil
}

func (b *builder) problem(line int, reason string) {
	r := &b.t.Report
	r.Skipped++
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, RowProblem{line, reason})
	}
}

// read adds the rows of a file.
func (b *builder) read(text []byte, overlay bool) error {
	s := newScanner(text)
	if !s.scan() {
		return errEmpty
	}
	width := len(s.fields)
	cols, err := readHeader(s.fields)
	if err != nil {
		return err
	}
	var key []byte
	for s.scan() {
		if len(s.fields) != width {
			b.problem(s.line, fmt.Sprintf("has %d fields instead of %d", len(s.fields), width))
			continue
		}
		if key, err = b.add(s.fields, &cols, key, overlay); err != nil {
			b.problem(s.line, err.Error())
		}
	}
	return nil
}

func get(fields [][]byte, i int) []byte {
	if i < 0 {
		return nil
	}
	return fields[i]
}

func empty(f []byte) bool {
	return len(f) == 0 || len(f) == 3 && (f[0]|0x20) == 'n' && (f[1]|0x20) == 'a' && (f[2]|0x20) == 'n'
}

func parseNumber(f []byte, absent float64) (float64, error) {
	if empty(f) {
		return absent, nil
	}
	x, err := strconv.ParseFloat(string(f), 64)
	if err != nil || x < 0 || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%q is not a number that makes sense here", f)
	}
	return x, nil
}

// add stores one row; key is scratch space.
func (b *builder) add(f [][]byte, c *columns, key []byte, overlay bool) ([]byte, error) {
	region, zone := get(f, c.region), get(f, c.zone)
	if empty(region) || c.zone >= 0 && len(zone) > 0 && empty(zone) {
		return key, errors.New("has no region")
	}
	if empty(zone) {
		zone = nil
	}
	if b.o.ZoneNames != nil && len(zone) > 0 {
		name, ok := b.o.ZoneNames[string(zone)]
		if !ok {
			return key, nil
		}
		zone = []byte(name)
	}
	price, err := parseNumber(get(f, c.price), none)
	if err != nil {
		return key, fmt.Errorf("price: %w", err)
	}
	spot, err := parseNumber(get(f, c.spot), none)
	if err != nil {
		return key, fmt.Errorf("spot price: %w", err)
	}
	key = key[:0]
	for _, i := range []int{c.instance, c.accelerator, c.count, c.cpus, c.memory} {
		key = append(append(key, get(f, i)...), 0)
	}
	id, ok := b.kindIDs[string(key)]
	if !ok {
		k, err := b.newKind(f, c)
		if err != nil {
			return key, err
		}
		id = int32(len(b.kinds))
		b.kindIDs[string(key)] = id
		b.kinds, b.rows = append(b.kinds, k), append(b.rows, nil)
	}
	r := row{price: price, spot: spot, seq: b.seq}
	b.seq++
	if r.region, err = b.regions.id(region); err != nil {
		return key, err
	}
	if r.zone, err = b.zones.id(zone); err != nil {
		return key, err
	}
	if overlay {
		b.replace(id, r)
		return key, nil
	}
	b.rows[id] = append(b.rows[id], r)
	return key, nil
}

// replace puts a row of an overlay in the place of those it corrects.
func (b *builder) replace(id int32, r row) {
	k := &b.kinds[id]
	for i := range b.kinds {
		if b.kinds[i].instance != k.instance || b.kinds[i].accelerator != k.accelerator {
			continue
		}
		b.rows[i] = slices.DeleteFunc(b.rows[i], func(o row) bool {
			return o.region == r.region && (o.zone == r.zone || r.zone == 0)
		})
	}
	b.rows[id] = append(b.rows[id], r)
}

func (b *builder) newKind(f [][]byte, c *columns) (kind, error) {
	k := kind{instance: b.name(get(f, c.instance)), accelerator: b.name(bytes.TrimSpace(get(f, c.accelerator)))}
	if empty(get(f, c.accelerator)) {
		k.accelerator = ""
	}
	if k.instance == "" && k.accelerator == "" {
		return k, errors.New("names neither an instance type nor an accelerator")
	}
	var err error
	number := func(what string, i int) float64 {
		x, e := parseNumber(get(f, i), 0)
		if e != nil && err == nil {
			err = fmt.Errorf("%s: %w", what, e)
		}
		return x
	}
	k.count, k.cpus, k.memory = number("accelerator count", c.count), number("vCPUs", c.cpus), number("memory", c.memory)
	k.localDiskGB = number("local disk size", c.diskSize) * max(1, number("local disk count", c.diskCount))
	if err != nil {
		return k, err
	}
	if k.localDiskGB > 0 {
		k.localDisk = strings.ToLower(string(get(f, c.diskType)))
		if strings.EqualFold(string(get(f, c.nvme)), "true") {
			k.localDisk = "nvme"
		}
	}
	k.arch = b.name(get(f, c.arch))
	if k.accelerator != "" {
		if k.count == 0 {
			return k, fmt.Errorf("has no number of %s", k.accelerator)
		}
		k.accelerators = b.acceleratorMap(k.accelerator, k.count)
		gpu := get(f, c.gpu)
		k.listed, k.deviceMiB = !empty(gpu), deviceMiB(gpu)
	}
	return k, nil
}

func (b *builder) acceleratorMap(name string, count float64) map[string]float64 {
	key := FormatCount(name, count)
	m := b.accMaps[key]
	if m == nil {
		m = map[string]float64{name: count}
		b.accMaps[key] = m
	}
	return m
}

// name interns a text.
func (b *builder) name(f []byte) string {
	if s, ok := b.names[string(f)]; ok {
		return s
	}
	s := string(f)
	b.names[s] = s
	return s
}

// deviceMiB finds the memory of one device in a GpuInfo field, which is a
// Python literal or only a name.
func deviceMiB(gpu []byte) float64 {
	_, after, ok := bytes.Cut(gpu, []byte("'SizeInMiB':"))
	if !ok {
		return 0
	}
	after = bytes.TrimLeft(after, " '")
	end := bytes.IndexFunc(after, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(after)
	}
	x, _ := strconv.ParseFloat(string(after[:end]), 64)
	return x
}
