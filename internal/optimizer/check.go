package optimizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/task"
)

// InvalidError is a request that can mean nothing: it names what does not
// exist, or contradicts itself. API clients know it as a ValueError.
type InvalidError struct {
	Task  string
	Field string // of resources, such as "region"
	Value string
	What  string   // what is wrong with it
	Close []string // names that it might mean
}

// maxClose is how many close names an error text lists.
const maxClose = 10

func (e *InvalidError) Error() string {
	s := fmt.Sprintf("resources.%s: %q", e.Field, e.Value)
	if e.Task != "" {
		s = fmt.Sprintf("task %q, %s", e.Task, s)
	}
	s += ": " + e.What
	switch len(e.Close) {
	case 0:
	case 1:
		s += fmt.Sprintf("; did you mean %s?", e.Close[0])
	default:
		s += "; did you mean one of " + strings.Join(e.Close[:min(len(e.Close), maxClose)], ", ")
		if more := len(e.Close) - maxClose; more > 0 {
			s += fmt.Sprintf(" or %d more", more)
		}
		s += "?"
	}
	return s
}

func (f *finder) invalid(field, value, what string, near []string) error {
	return &InvalidError{Task: f.task.Name, Field: field, Value: value, What: what, Close: near}
}

// check refuses names that no eligible source has, and instance types that
// contradict the rest of the request.
func (f *finder) check(req *request) error {
	r := req.res
	if !slices.ContainsFunc(f.problem.Sources, func(s Source) bool { return f.eligible(s, r) }) {
		return nil // reported as "not enabled"
	}
	if len(r.ImageID) > 0 && r.Cloud == "" {
		if image := machineImage(r); image != "" {
			return f.invalid("image_id", image, "images belong to one cloud: say which with infra:", nil)
		}
	}
	for _, id := range r.ImageID {
		if err := f.checkImage(r, id); err != nil {
			return err
		}
	}
	for _, n := range req.query.Regions {
		if err := f.known(r, "region", n, catalog.RegionNames); err != nil {
			return err
		}
	}
	for _, n := range req.query.Zones {
		if err := f.known(r, "zone", n, catalog.ZoneNames); err != nil {
			return err
		}
	}
	if r.InstanceType == "" {
		return nil
	}
	return f.checkInstance(req)
}

// checkImage refuses a tag that the cloud's list of images does not have.
func (f *finder) checkImage(r *task.Resources, id string) error {
	if !strings.HasPrefix(id, "skypilot:") {
		return nil
	}
	for _, s := range f.problem.Sources {
		if tags := s.Names(catalog.ImageTagNames); f.eligible(s, r) && len(tags) > 0 && !slices.Contains(tags, id) {
			return f.invalid("image_id", id, "no such image tag on "+s.DisplayName(), similar.Closest(id, tags, 5))
		}
	}
	return nil
}

// machineImage is an image of machines, not of containers, that the request
// names; "": it names none.
func machineImage(r *task.Resources) string {
	for region, id := range r.ImageID {
		if region != "docker" && !strings.HasPrefix(id, "docker:") {
			return id
		}
	}
	return ""
}

// known refuses a name that no eligible source has.
func (f *finder) known(r *task.Resources, field, name string, kind catalog.NameKind) error {
	var all, where []string
	for _, s := range f.problem.Sources {
		if !f.eligible(s, r) {
			continue
		}
		names := s.Names(kind)
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			return nil
		}
		all, where = append(all, names...), append(where, s.DisplayName())
	}
	what := fmt.Sprintf("no such %s on %s", kind, strings.Join(where, ", "))
	if len(all) == 0 {
		what = fmt.Sprintf("%s has no %ss to choose from", strings.Join(where, ", "), kind)
	}
	return f.invalid(field, name, what, similar.Closest(name, all, 5))
}

// checkInstance compares what an instance type has with what else is asked.
func (f *finder) checkInstance(req *request) error {
	r, q := req.res, req.query
	found := false
	for _, s := range f.problem.Sources {
		if !f.eligible(s, r) {
			continue
		}
		offers := s.Find(catalog.Query{InstanceType: r.InstanceType})
		if len(offers) == 0 {
			offers = s.Find(catalog.Query{InstanceType: r.InstanceType, Spot: true})
		}
		if _, ok := s.(tailored); ok && len(offers) == 0 {
			return nil // it says best why there is none
		}
		if len(offers) == 0 {
			continue
		}
		found = true
		o := &offers[0]
		if !q.CPUs.Fits(o.CPUs, o.CPUs) {
			return f.invalid("cpus", r.CPUs, fmt.Sprintf("%s has %v vCPUs", o.InstanceType, o.CPUs), nil)
		}
		if !q.Memory.Fits(o.MemoryGiB, o.CPUs) {
			return f.invalid("memory", r.Memory, fmt.Sprintf("%s has %v GB of memory", o.InstanceType, o.MemoryGiB), nil)
		}
	}
	if !found {
		return f.known(r, "instance_type", r.InstanceType, catalog.InstanceNames)
	}
	return nil
}
