package task

import (
	"maps"
	"slices"
)

// resourcesTree writes one candidate as a map, several under any_of or
// ordered.
func (t *Task) resourcesTree(display bool) *node {
	switch len(t.Resources) {
	case 0:
		return (&Resources{}).tree(display)
	case 1:
		return t.Resources[0].tree(display)
	}
	list := &node{kind: sequenceNode}
	for i := range t.Resources {
		list.items = append(list.items, t.Resources[i].tree(display))
	}
	if t.Preference == Ordered {
		return newMap().put(string(Ordered), list)
	}
	return newMap().put(string(AnyOf), list)
}

// place writes where: as infra if that says it all.
func (r *Resources) place(n *node) {
	in := Infra{r.Cloud, r.Region, r.Zone}
	if text := in.String(); text != "" && r.Regions == nil && r.Zones == nil {
		if back, err := ParseInfra(text); err == nil && back == in && checkInfra(text) == nil {
			n.put("infra", text)
			return
		}
	}
	n.putText("cloud", r.Cloud)
	if r.Regions != nil {
		n.put("region", r.Regions)
	}
	n.putText("region", r.Region)
	if r.Zones != nil {
		n.put("zone", r.Zones)
	}
	n.putText("zone", r.Zone)
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

func (r *Resources) tree(display bool) *node {
	n := newMap()
	r.place(n)
	n.putText("instance_type", r.InstanceType).putText("cpus", r.CPUs).putText("memory", r.Memory)
	if len(r.Accelerators) > 0 {
		acc := newMap()
		for _, a := range r.Accelerators {
			acc.put(a.Name, plainNumber(a.Count))
		}
		n.put("accelerators", acc)
	}
	if r.AcceleratorArgs != nil {
		n.put("accelerator_args", r.AcceleratorArgs)
	}
	n.put("use_spot", r.UseSpot)
	n.put("job_recovery", r.JobRecovery.tree())
	if r.DiskSize != 0 {
		n.put("disk_size", r.DiskSize)
	} else if !display {
		n.put("disk_size", DefaultDiskSize)
	}
	if r.EphemeralStorage != 0 {
		n.put("ephemeral_storage", r.EphemeralStorage)
	}
	n.put("image_id", r.imageTree())
	n.putText("disk_tier", r.DiskTier).putText("network_tier", r.NetworkTier).putText("local_disk", r.LocalDisk)
	if r.MaxHourlyCost != 0 {
		n.put("max_hourly_cost", plainNumber(r.MaxHourlyCost))
	}
	if len(r.Ports) > 0 {
		n.put("ports", r.Ports)
	}
	if len(r.Labels) > 0 {
		n.put("labels", r.Labels)
	}
	if len(r.Volumes) > 0 {
		list := &node{kind: sequenceNode}
		for _, v := range r.Volumes {
			list.items = append(list.items, toNode(v))
		}
		n.put("volumes", list)
	}
	n.put("autostop", r.Autostop.tree())
	if !display {
		for _, k := range slices.Sorted(maps.Keys(r.Internal)) {
			n.put(k, r.Internal[k])
		}
	}
	n.put("priority", r.Priority)
	return n.putText("priority_class", r.PriorityClass)
}

func (j *JobRecovery) tree() any {
	switch {
	case j == nil:
		return nil
	case j.Strategy != "" && j.MaxRestartsOnErrors == 0 && j.RecoverOnExitCodes == nil && j.Extra == nil:
		return j.Strategy
	}
	n := newMap()
	if j.Strategy == "" {
		n.put("strategy", null{})
	} else {
		n.put("strategy", j.Strategy)
	}
	if j.MaxRestartsOnErrors != 0 {
		n.put("max_restarts_on_errors", j.MaxRestartsOnErrors)
	}
	if j.RecoverOnExitCodes != nil {
		n.put("recover_on_exit_codes", j.RecoverOnExitCodes)
	}
	for _, k := range slices.Sorted(maps.Keys(j.Extra)) {
		if v := j.Extra[k]; v != nil {
			n.put(k, v)
		} else {
			n.put(k, null{}) // nobody here knows what it means to leave it empty
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
	n := newMap().put("idle_minutes", a.IdleMinutes).put("down", a.Down)
	return n.putText("wait_for", a.WaitFor)
}
