package model

import (
	"fmt"
	"strings"
	"time"
)

// Config describes a cloud. The zero value of a field means what its comment
// says; [Default] is a cloud to play with.
type Config struct {
	Seed    uint64           // the same seed and calls give the same cloud
	Now     func() time.Time // nil: time.Now
	Regions []Region
	Types   []Type

	Boot      Delay         // from a request to running
	Halt      Delay         // from a request to stopped or terminated
	Notice    time.Duration // between the notice and a spot instance's end
	SpotLife  time.Duration // mean life of a spot instance; 0: none is taken back by itself
	Linger    time.Duration // how long terminated instances are listed; 0: an hour
	PageSize  int           // of lists; 0: 100
	Capacity  int           // instances of a type in a zone; 0: unlimited
	CallRate  float64       // calls a second an account may make; 0: unlimited
	CallBurst int           // calls an account may save up

	// ID makes the ids of instances; nil: "fc-" and a number.
	ID func(seq uint64) string
	// Machines, if set, are real: instances become running when
	// [Cloud.Booted] is called and off when [Cloud.Halted] is.
	Machines Machines
	// Commit, if set, keeps the snapshot before a change is answered. Its
	// error undoes nothing, it only keeps the caller from believing.
	Commit func(snapshot []byte) error
	// Record keeps every change of state for [Cloud.History].
	Record bool
}

// Machines are what instances stand for outside the model.
type Machines interface {
	// Address gives a new instance its address; seq is different for each.
	Address(id string, seq uint64) (ip string, sshPort int)
	// HostKey makes the instance's host key and returns its public half.
	HostKey(id string) (string, error)
	// SaveDisk copies the disk of an instance that is off into an image, LoadDisk that of an
	// image into a new instance, and DropDisk removes an image.
	SaveDisk(instance, image string) error
	LoadDisk(image, instance string) error
	DropDisk(image string) error
}

// Region is a place with its own quota. Zones are named region-letter and have
// their own capacity.
type Region struct {
	Name   string
	Zones  []string
	Factor float64 // of prices; 0: 1
}

// Type is a type of instance. A price is for an hour.
type Type struct {
	Name         string
	CPUs         int
	MemoryGiB    float64
	Accelerators map[string]float64
	Price        float64
	SpotPrice    float64  // 0: not sold as spot
	Regions      []string // nil: everywhere
}

// family is what a quota counts, and how much of it an instance uses.
func (t *Type) family(spot bool) (name string, units int) {
	name, units = "cpus", t.CPUs
	for acc, n := range t.Accelerators {
		name, units = acc, int(n)
	}
	if spot {
		name = "spot-" + name
	}
	return name, units
}

// Delay is a duration drawn evenly from a range.
type Delay struct{ Min, Max time.Duration }

// Default is a cloud with three regions of three zones and twelve types, with
// delays like those of a fast cloud.
func Default(seed uint64) Config {
	gpu := func(name, acc string, n float64, cpus int, mem, price float64) Type {
		return Type{Name: name, CPUs: cpus, MemoryGiB: mem, Accelerators: map[string]float64{acc: n}, Price: price, SpotPrice: price * 0.4}
	}
	cpu := func(name string, cpus int, mem, price float64) Type {
		return Type{Name: name, CPUs: cpus, MemoryGiB: mem, Price: price, SpotPrice: price * 0.3}
	}
	return Config{
		Seed: seed,
		Regions: []Region{
			{Name: "east", Zones: []string{"east-a", "east-b", "east-c"}, Factor: 1},
			{Name: "west", Zones: []string{"west-a", "west-b", "west-c"}, Factor: 1.1},
			{Name: "north", Zones: []string{"north-a", "north-b", "north-c", "north-d"}, Factor: 0.95},
		},
		Types: []Type{
			cpu("puff-1", 1, 2, 0.02), cpu("puff-2", 2, 8, 0.08), cpu("puff-4", 4, 16, 0.16), cpu("puff-8", 8, 32, 0.32),
			cpu("puff-32", 32, 128, 1.28), cpu("puff-8-mem", 8, 128, 0.60),
			gpu("fluff-t4", "T4", 1, 4, 16, 0.40), gpu("fluff-l4", "L4", 1, 8, 32, 0.70), gpu("fluff-l4-8", "L4", 8, 64, 256, 5.60),
			gpu("fluff-a100", "A100", 1, 12, 85, 2.80), gpu("fluff-a100-8", "A100", 8, 96, 680, 22.4),
			{Name: "fluff-h100-8", CPUs: 192, MemoryGiB: 2048, Accelerators: map[string]float64{"H100": 8}, Price: 60, SpotPrice: 21,
				Regions: []string{"east", "north"}},
		},
		Boot:   Delay{20 * time.Second, 60 * time.Second},
		Halt:   Delay{5 * time.Second, 20 * time.Second},
		Notice: 2 * time.Minute,
	}
}

// regionOf finds the region of a zone; nil if there is no such zone.
func (c *Config) regionOf(zone string) *Region {
	for i := range c.Regions {
		for _, z := range c.Regions[i].Zones {
			if z == zone {
				return &c.Regions[i]
			}
		}
	}
	return nil
}

func (c *Config) region(name string) *Region {
	for i := range c.Regions {
		if c.Regions[i].Name == name {
			return &c.Regions[i]
		}
	}
	return nil
}

// typeIn finds a type that the region sells; nil if it does not.
func (c *Config) typeIn(name string, r *Region) *Type {
	for i := range c.Types {
		t := &c.Types[i]
		if t.Name != name {
			continue
		}
		if t.Regions == nil {
			return t
		}
		for _, sold := range t.Regions {
			if sold == r.Name {
				return t
			}
		}
	}
	return nil
}

func (c *Config) validate() error {
	zones := map[string]bool{}
	for _, r := range c.Regions {
		for _, z := range r.Zones {
			if zones[z] || !strings.HasPrefix(z, r.Name+"-") {
				return fmt.Errorf("zone %q of region %q must be unique and begin with the region's name", z, r.Name)
			}
			zones[z] = true
		}
	}
	types := map[string]bool{}
	for _, t := range c.Types {
		if t.Name == "" || types[t.Name] || t.CPUs <= 0 || t.Price <= 0 || t.SpotPrice < 0 || len(t.Accelerators) > 1 {
			return fmt.Errorf("type %q must have a name of its own, CPUs, a price and at most one kind of accelerator", t.Name)
		}
		types[t.Name] = true
	}
	return nil
}
