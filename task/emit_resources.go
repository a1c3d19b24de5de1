package task

import (
	"maps"
	"slices"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// resourcesTree writes one candidate as a map, several under any_of or
// ordered.
func (t *Task) resourcesTree(display bool) *yaml11.Node {
	switch len(t.Resources) {
	case 0:
		return (&Resources{}).tree(display)
	case 1:
		return t.Resources[0].tree(display)
	}
	list := yaml11.NewList()
	for i := range t.Resources {
		list.Items = append(list.Items, t.Resources[i].tree(display))
	}
	if t.Preference == Ordered {
		return yaml11.NewMap().Put(string(Ordered), list)
	}
	return yaml11.NewMap().Put(string(AnyOf), list)
}

// place writes where: as infra if that says it all.
func (r *Resources) place(n *yaml11.Node) {
	if text, ok := (Infra{r.Cloud, r.Region, r.Zone}).written(); ok && r.Regions == nil && r.Zones == nil {
		n.Put("infra", text)
		return
	}
	n.PutText("cloud", r.Cloud)
	if r.Regions != nil {
		n.Put("region", r.Regions)
	}
	n.PutText("region", r.Region)
	if r.Zones != nil {
		n.Put("zone", r.Zones)
	}
	n.PutText("zone", r.Zone)
}

func (r *Resources) imageTree() any {
	if len(r.ImageID) == 1 {
		if image, ok := r.ImageID[""]; ok {
			return image
		}
		if image, ok := r.ImageID["docker"]; ok {
			return "docker:" + image
		}
	}
	if len(r.ImageID) == 0 {
		return nil
	}
	return r.ImageID
}

func (r *Resources) tree(display bool) *yaml11.Node {
	n := yaml11.NewMap()
	r.place(n)
	n.PutText("instance_type", r.InstanceType).PutText("cpus", r.CPUs).PutText("memory", r.Memory)
	if len(r.Accelerators) > 0 {
		acc := yaml11.NewMap()
		for _, a := range r.Accelerators {
			acc.Put(a.Name, yaml11.PlainNumber(a.Count))
		}
		n.Put("accelerators", acc)
	}
	if r.AcceleratorArgs != nil {
		n.Put("accelerator_args", r.AcceleratorArgs)
	}
	n.Put("use_spot", r.UseSpot)
	n.Put("job_recovery", r.JobRecovery.tree())
	if r.DiskSize != 0 {
		n.Put("disk_size", r.DiskSize)
	} else if !display {
		n.Put("disk_size", DefaultDiskSize)
	}
	if r.EphemeralStorage != 0 {
		n.Put("ephemeral_storage", r.EphemeralStorage)
	}
	n.Put("image_id", r.imageTree())
	n.PutText("disk_tier", r.DiskTier).PutText("network_tier", r.NetworkTier).PutText("local_disk", r.LocalDisk)
	if r.MaxHourlyCost != 0 {
		n.Put("max_hourly_cost", yaml11.PlainNumber(r.MaxHourlyCost))
	}
	if r.EstimatedRuntime > 0 {
		n.Put("estimated_runtime", yaml11.PlainNumber(r.EstimatedRuntime))
	}
	if len(r.Ports) > 0 {
		n.Put("ports", r.Ports)
	}
	if len(r.Labels) > 0 {
		n.Put("labels", r.Labels)
	}
	if len(r.Volumes) > 0 {
		list := yaml11.NewList()
		for _, v := range r.Volumes {
			list.Items = append(list.Items, yaml11.Of(v))
		}
		n.Put("volumes", list)
	}
	n.Put("autostop", r.Autostop.tree())
	if !display {
		for _, k := range slices.Sorted(maps.Keys(r.Internal)) {
			n.Put(k, r.Internal[k])
		}
	}
	n.Put("priority", r.Priority)
	return n.PutText("priority_class", r.PriorityClass)
}

func (j *JobRecovery) tree() any {
	switch {
	case j == nil:
		return nil
	case j.Strategy != "" && j.MaxRestartsOnErrors == 0 && j.RecoverOnExitCodes == nil && j.Extra == nil:
		return j.Strategy
	}
	n := yaml11.NewMap()
	if j.Strategy == "" {
		n.Put("strategy", yaml11.NewScalar(nil))
	} else {
		n.Put("strategy", j.Strategy)
	}
	if j.MaxRestartsOnErrors != 0 {
		n.Put("max_restarts_on_errors", j.MaxRestartsOnErrors)
	}
	if j.RecoverOnExitCodes != nil {
		n.Put("recover_on_exit_codes", j.RecoverOnExitCodes)
	}
	for _, k := range slices.Sorted(maps.Keys(j.Extra)) {
		if v := j.Extra[k]; v != nil {
			n.Put(k, v)
		} else {
			n.Put(k, yaml11.NewScalar(nil)) // nobody here knows what it means to leave it empty
		}
	}
	return n
}

func (a *Autostop) tree() any {
	switch {
	case a == nil:
		return nil
	case !a.Enabled:
		return false
	}
	n := yaml11.NewMap().Put("idle_minutes", a.IdleMinutes).Put("down", a.Down)
	return n.PutText("wait_for", a.WaitFor)
}
