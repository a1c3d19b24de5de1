package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// edit changes one field of a candidate.
type edit struct {
	flag string
	do   func(*Resources)
}

// sameTree: two candidates ask for the same.
func sameTree(a, b *Resources) bool {
	var x, y yaml11.Writer
	x.Document(a.tree(false))
	y.Document(b.tree(false))
	return x.String() == y.String()
}

func isNone(s string) bool { return strings.EqualFold(s, "none") }

// edits reads the flags that change candidates.
func (o Overrides) edits() (edits []edit, err error) {
	fail := func(flag string, e error) {
		if err == nil && e != nil {
			err = flagError(flag, "%s", e)
		}
	}
	add := func(flag string, do func(*Resources)) { edits = append(edits, edit{flag, do}) }
	// set reads a text; "none" gives the zero value.
	set := func(flag string, value *string, read func(string) (string, error), do func(*Resources, string)) {
		if value == nil {
			return
		}
		text := ""
		if !isNone(*value) {
			var e error
			if text, e = read(*value); e != nil {
				fail(flag, e)
				return
			}
		}
		add(flag, func(r *Resources) { do(r, text) })
	}
	asIs := func(s string) (string, error) { return s, nil }

	if o.Infra != nil {
		var in Infra
		if !isNone(*o.Infra) {
			var e error
			in, e = ParseInfra(*o.Infra)
			fail("--infra", e)
		}
		add("--infra", func(r *Resources) {
			r.Cloud, r.Region, r.Zone, r.Regions, r.Zones = in.Cloud, in.Region, in.Zone, nil, nil
		})
	}
	star := func(s string) (string, error) { return strings.TrimPrefix(s, "*"), nil }
	set("--cloud", o.Cloud, func(s string) (string, error) {
		if s == "*" {
			return "", nil
		}
		return CloudName(s)
	}, func(r *Resources, s string) { r.Cloud = s })
	set("--region", o.Region, star, func(r *Resources, s string) { r.Region, r.Regions = s, nil })
	set("--zone", o.Zone, star, func(r *Resources, s string) { r.Zone, r.Zones = s, nil })
	set("--gpus", o.GPUs, func(s string) (string, error) {
		a, e := ParseAccelerator(s)
		return a.String(), e
	}, func(r *Resources, s string) {
		r.Accelerators = nil
		if s != "" {
			a, _ := ParseAccelerator(s)
			r.Accelerators = []Accelerator{a}
		}
	})
	set("--cpus", o.CPUs, ParseCPUs, func(r *Resources, s string) { r.CPUs = s })
	set("--memory", o.Memory, ParseMemory, func(r *Resources, s string) { r.Memory = s })
	set("--instance-type", o.InstanceType, asIs, func(r *Resources, s string) { r.InstanceType = s })
	set("--image-id", o.ImageID, asIs, func(r *Resources, s string) { r.ImageID = imageOf(s) })
	set("--disk-tier", o.DiskTier, oneOf(DiskTiers), func(r *Resources, s string) { r.DiskTier = s })
	set("--network-tier", o.NetworkTier, oneOf(NetworkTiers), func(r *Resources, s string) { r.NetworkTier = s })
	set("--local-disk", o.LocalDisk, ParseLocalDisk, func(r *Resources, s string) { r.LocalDisk = s })
	set("--job-recovery", o.JobRecovery, asIs, func(r *Resources, s string) {
		if s == "" {
			r.JobRecovery = nil
			return
		}
		jr := JobRecovery{}
		if r.JobRecovery != nil {
			jr = *r.JobRecovery
		}
		jr.Strategy = strings.ToUpper(strings.TrimSpace(s))
		r.JobRecovery = &jr
	})
	set("--priority", o.Priority, asIs, func(r *Resources, s string) {
		r.Priority, r.PriorityClass = nil, ""
		if n, e := strconv.Atoi(strings.TrimSpace(s)); e == nil {
			r.Priority = &n
		} else {
			r.PriorityClass = strings.TrimSpace(s)
		}
	})
	if o.Priority != nil {
		if n, e := strconv.Atoi(strings.TrimSpace(*o.Priority)); e == nil && (n < -1000 || n > 1000) {
			fail("--priority", fmt.Errorf("should be from -1000 to 1000, not %d", n))
		}
	}
	if o.DiskSize != nil {
		_, e := ParseDiskSize(strconv.Itoa(*o.DiskSize))
		fail("--disk-size", e)
		add("--disk-size", func(r *Resources) { r.setDiskSize(strconv.Itoa(*o.DiskSize)) })
	}
	if o.UseSpot != nil {
		add("--use-spot", func(r *Resources) { spot := *o.UseSpot; r.UseSpot = &spot })
	}
	if len(o.Ports) > 0 {
		ports, e := overridePorts(o.Ports)
		fail("--ports", e)
		add("--ports", func(r *Resources) { r.Ports = slices.Clone(ports) })
	}
	if o.Autostop != nil {
		add("autostop", func(r *Resources) { a := *o.Autostop; r.Autostop = &a })
	}
	return edits, err
}

func overridePorts(flags []string) ([]string, error) {
	if len(flags) == 1 && isNone(flags[0]) {
		return nil, nil
	}
	if slices.ContainsFunc(flags, isNone) {
		return nil, fmt.Errorf(`takes "none" or ports, not both`)
	}
	return ParsePorts(flags...)
}

func oneOf(words []string) func(string) (string, error) {
	return func(s string) (string, error) {
		if w := strings.ToLower(s); slices.Contains(words, w) {
			return w, nil
		}
		return "", fmt.Errorf("should be one of %s or none, not %q", strings.Join(words, ", "), s)
	}
}
