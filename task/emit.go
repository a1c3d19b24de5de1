package task

import (
	"maps"
	"slices"
)

// YAML writes the Dag in the form that travels: a header document, then one
// per task, secrets in clear. Parse reads it back as the same Dag. It fails
// while a variable has no value.
func (d *Dag) YAML() ([]byte, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	return d.write(false), nil
}

// DisplayYAML is YAML for people: without secrets, without fields that only
// programs read, and without a header if there is one task.
func (d *Dag) DisplayYAML() ([]byte, error) {
	var values []string
	for _, t := range d.Tasks {
		values = append(values, t.secretValues()...)
	}
	// A variable may have been put into another field.
	return []byte(hideIn(string(d.write(true)), values)), nil
}

func (d *Dag) write(display bool) []byte {
	var w writer
	header := !display || len(d.Tasks) != 1 || d.Name != d.Tasks[0].Name
	if header {
		w.document(d.header())
		w.WriteString("---\n")
	}
	for i, t := range d.Tasks {
		if i > 0 {
			w.WriteString("---\n")
		}
		n := t.tree(display)
		if !header {
			n.put("schedule", d.Schedule.tree())
		}
		w.document(n)
	}
	return []byte(w.String())
}

func (d *Dag) header() *node {
	h := newMap()
	if d.Name == "" {
		h.put("name", null{})
	} else {
		h.put("name", d.Name)
	}
	h.put("schedule", d.Schedule.tree())
	if d.Execution != Parallel {
		return h
	}
	h.put("execution", string(Parallel))
	if len(d.PrimaryTasks) > 0 {
		h.put("primary_tasks", d.PrimaryTasks)
	}
	if n, ok := d.TerminationDelay["default"]; ok && len(d.TerminationDelay) == 1 {
		h.put("termination_delay", n)
	} else if d.TerminationDelay != nil {
		h.put("termination_delay", d.TerminationDelay)
	}
	return h
}

// tree is the task as a document, keys in canonical order.
func (t *Task) tree(display bool) *node {
	n := newMap()
	n.putText("name", t.Name)
	if r := t.resourcesTree(display); len(r.entries) > 0 {
		n.put("resources", r)
	}
	if t.DependsOn != nil {
		n.put("depends_on", t.DependsOn)
	}
	if t.MaxDuration > 0 {
		n.put("max_duration", t.MaxDuration)
	}
	if len(t.Config) > 0 {
		n.put("config", t.Config)
	}
	switch {
	case t.Service != nil:
		n.put("service", t.Service.tree())
	case t.Pool != nil:
		n.put("service", newMap().put("pool", t.Pool.tree()))
	}
	n.put("num_nodes", max(t.NumNodes, 1))
	n.put("inputs", t.Inputs.tree())
	n.put("outputs", t.Outputs.tree())
	n.putText("setup", t.Setup)
	if t.Git != nil {
		n.put("workdir", newMap().put("url", t.Git.URL).putText("ref", t.Git.Ref))
	} else {
		n.putText("workdir", t.Workdir)
	}
	n.putText("event_callback", t.EventCallback)
	n.putText("run", t.Run)
	if len(t.Envs) > 0 {
		envs := maps.Clone(t.Envs)
		for name := range envs {
			if display && SecretName(name) {
				envs[name] = Redacted
			}
		}
		n.put("envs", envs)
	}
	n.put("secrets", t.secretsTree(display))
	if len(t.ManagedSecrets) > 0 {
		list := &node{kind: sequenceNode}
		for _, m := range t.ManagedSecrets {
			item := toNode(m.Name)
			if m.MountPath != "" {
				item = newMap().put(m.Name, newMap().put("mount_path", m.MountPath))
			}
			list.items = append(list.items, item)
		}
		n.put("managed_secrets", list)
	}
	if mounts := t.mountsTree(display); !display || len(mounts.entries) > 0 {
		n.put("file_mounts", mounts)
	}
	if t.FileMountsMapping != nil && !display {
		n.put("file_mounts_mapping", t.FileMountsMapping)
	}
	if volumes := t.volumesTree(); !display || len(volumes.entries) > 0 {
		n.put("volumes", volumes)
	}
	if t.APIServerAccess != nil && !*t.APIServerAccess {
		n.put("api_server_access", false)
	}
	if !display {
		meta := t.Metadata
		if vars := t.variables(); slices.ContainsFunc(substituted, func(f string) bool {
			v := n.get(f)
			return v != nil && mentionsVariable(v, vars.values)
		}) {
			// A value that holds "$NAME" itself: the reader must not replace it again.
			meta = mergeMaps(meta, map[string]any{substitutedMark: true})
		}
		if meta != nil {
			n.put("_metadata", meta)
		}
		n.putText("_user_specified_yaml", t.UserYAML)
	}
	return n
}

func (s *DataSize) tree() any {
	if s == nil {
		return nil
	}
	return newMap().put(s.URI, plainNumber(s.GB))
}

func (t *Task) secretsTree(display bool) any {
	refs := slices.Clone(t.SecretRefs)
	for i := range refs {
		refs[i] = "secrets:" + refs[i]
	}
	if len(t.Secrets) == 0 {
		if len(refs) == 0 {
			return nil
		}
		return refs
	}
	n := newMap()
	for _, k := range slices.Sorted(maps.Keys(t.Secrets)) {
		if display {
			n.put(k, Redacted)
		} else {
			n.put(k, t.Secrets[k].Reveal())
		}
	}
	for _, r := range refs {
		n.put(r, null{})
	}
	return n
}

func (t *Task) mountsTree(display bool) *node {
	n := newMap()
	for _, dest := range slices.Sorted(maps.Keys(t.FileMounts)) {
		n.put(dest, t.FileMounts[dest])
	}
	for _, dest := range slices.Sorted(maps.Keys(t.StorageMounts)) {
		n.put(dest, t.StorageMounts[dest].tree(display))
	}
	return n
}

func (m StorageMount) tree(display bool) *node {
	n := newMap().putText("name", m.Name)
	switch {
	case m.SourceList:
		n.put("source", m.Sources)
	case len(m.Sources) > 0:
		n.put("source", m.Sources[0])
	}
	n.putText("store", m.Store)
	if !m.Persistent || !display {
		n.put("persistent", m.Persistent)
	}
	if m.Mode != "" {
		n.put("mode", m.Mode)
	}
	n.putText("type", m.Type)
	if m.Config != nil {
		n.put("config", m.Config)
	}
	if !display {
		for _, k := range slices.Sorted(maps.Keys(m.Internal)) {
			n.put(k, m.Internal[k])
		}
	}
	return n
}

func (t *Task) volumesTree() *node {
	n := newMap()
	for _, dest := range slices.Sorted(maps.Keys(t.Volumes)) {
		v := t.Volumes[dest]
		if v.Name != "" && v.SubPath == "" && v.Type == "" && v.Labels == nil && v.Config == nil {
			n.put(dest, v.Name)
			continue
		}
		m := newMap().putText("name", v.Name).putText("sub_path", v.SubPath).putText("size", v.Size).putText("type", v.Type)
		if v.Labels != nil {
			m.put("labels", v.Labels)
		}
		if v.Config != nil {
			m.put("config", v.Config)
		}
		n.put(dest, m)
	}
	return n
}
