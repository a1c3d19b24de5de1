package task

import (
	"maps"
	"slices"

	"github.com/skypilot-go/sky/internal/yaml11"
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
	var w yaml11.Writer
	header := !display || len(d.Tasks) != 1 || d.Name != d.Tasks[0].Name
	if header {
		w.Document(d.header())
		w.WriteString("---\n")
	}
	for i, t := range d.Tasks {
		if i > 0 {
			w.WriteString("---\n")
		}
		n := t.tree(display)
		if !header {
			n.Put("schedule", d.Schedule.tree())
		}
		w.Document(n)
	}
	return []byte(w.String())
}

func (d *Dag) header() *yaml11.Node {
	h := yaml11.NewMap()
	if d.Name == "" {
		h.Put("name", yaml11.NewScalar(nil))
	} else {
		h.Put("name", d.Name)
	}
	h.Put("schedule", d.Schedule.tree())
	if d.Execution != Parallel {
		return h
	}
	h.Put("execution", string(Parallel))
	if len(d.PrimaryTasks) > 0 {
		h.Put("primary_tasks", d.PrimaryTasks)
	}
	if n, ok := d.TerminationDelay["default"]; ok && len(d.TerminationDelay) == 1 {
		h.Put("termination_delay", n)
	} else if d.TerminationDelay != nil {
		h.Put("termination_delay", d.TerminationDelay)
	}
	return h
}

// tree is the task as a document, keys in canonical order.
func (t *Task) tree(display bool) *yaml11.Node {
	n := yaml11.NewMap()
	n.PutText("name", t.Name)
	if r := t.resourcesTree(display); len(r.Entries) > 0 {
		n.Put("resources", r)
	}
	if list := blockedTree(t.BlockedResources); list != nil {
		n.Put("blocked_resources", list)
	}
	if t.EstimatedRuntime > 0 {
		n.Put("estimated_runtime", yaml11.PlainNumber(t.EstimatedRuntime))
	}
	if t.DependsOn != nil {
		n.Put("depends_on", t.DependsOn)
	}
	if t.MaxDuration > 0 {
		n.Put("max_duration", t.MaxDuration)
	}
	if len(t.Config) > 0 {
		n.Put("config", t.Config)
	}
	switch {
	case t.Service != nil:
		n.Put("service", t.Service.tree())
	case t.Pool != nil:
		n.Put("service", yaml11.NewMap().Put("pool", t.Pool.tree()))
	}
	n.Put("num_nodes", max(t.NumNodes, 1))
	n.Put("inputs", t.Inputs.tree())
	n.Put("outputs", t.Outputs.tree())
	n.PutText("setup", t.Setup)
	if t.Git != nil {
		n.Put("workdir", yaml11.NewMap().Put("url", t.Git.URL).PutText("ref", t.Git.Ref))
	} else {
		n.PutText("workdir", t.Workdir)
	}
	n.PutText("event_callback", t.EventCallback)
	n.PutText("run", t.Run)
	if len(t.Envs) > 0 {
		envs := maps.Clone(t.Envs)
		for name := range envs {
			if display && SecretName(name) {
				envs[name] = Redacted
			}
		}
		n.Put("envs", envs)
	}
	n.Put("secrets", t.secretsTree(display))
	if len(t.ManagedSecrets) > 0 {
		list := yaml11.NewList()
		for _, m := range t.ManagedSecrets {
			item := yaml11.NewScalar(m.Name)
			if m.MountPath != "" {
				item = yaml11.NewMap().Put(m.Name, yaml11.NewMap().Put("mount_path", m.MountPath))
			}
			list.Items = append(list.Items, item)
		}
		n.Put("managed_secrets", list)
	}
	if mounts := t.mountsTree(display); !display || len(mounts.Entries) > 0 {
		n.Put("file_mounts", mounts)
	}
	if t.FileMountsMapping != nil && !display {
		n.Put("file_mounts_mapping", t.FileMountsMapping)
	}
	if volumes := t.volumesTree(); !display || len(volumes.Entries) > 0 {
		n.Put("volumes", volumes)
	}
	if t.APIServerAccess != nil && !*t.APIServerAccess {
		n.Put("api_server_access", false)
	}
	if !display {
		meta := t.Metadata
		if vars := t.variables(); slices.ContainsFunc(substituted, func(f string) bool {
			v := n.Get(f)
			return v != nil && mentionsVariable(v, vars.values)
		}) {
			// A value that holds "$NAME" itself: the reader must not replace it again.
			meta = mergeMaps(meta, map[string]any{substitutedMark: true})
		}
		if meta != nil {
			n.Put("_metadata", meta)
		}
		n.PutText("_user_specified_yaml", t.UserYAML)
	}
	return n
}

func (s *DataSize) tree() any {
	if s == nil {
		return nil
	}
	return yaml11.NewMap().Put(s.URI, yaml11.PlainNumber(s.GB))
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
	n := yaml11.NewMap()
	for _, k := range slices.Sorted(maps.Keys(t.Secrets)) {
		if display {
			n.Put(k, Redacted)
		} else {
			n.Put(k, t.Secrets[k].Reveal())
		}
	}
	for _, r := range refs {
		n.Put(r, yaml11.NewScalar(nil))
	}
	return n
}

func (t *Task) mountsTree(display bool) *yaml11.Node {
	n := yaml11.NewMap()
	for _, dest := range slices.Sorted(maps.Keys(t.FileMounts)) {
		n.Put(dest, t.FileMounts[dest])
	}
	for _, dest := range slices.Sorted(maps.Keys(t.StorageMounts)) {
		n.Put(dest, t.StorageMounts[dest].tree(display))
	}
	return n
}

func (m StorageMount) tree(display bool) *yaml11.Node {
	n := yaml11.NewMap().PutText("name", m.Name)
	switch {
	case m.SourceList:
		n.Put("source", m.Sources)
	case len(m.Sources) > 0:
		n.Put("source", m.Sources[0])
	}
	n.PutText("store", m.Store)
	if !m.Persistent || !display {
		n.Put("persistent", m.Persistent)
	}
	if m.Mode != "" {
		n.Put("mode", m.Mode)
	}
	n.PutText("type", m.Type)
	if m.Config != nil {
		n.Put("config", m.Config)
	}
	if !display {
		for _, k := range slices.Sorted(maps.Keys(m.Internal)) {
			n.Put(k, m.Internal[k])
		}
	}
	return n
}

func (t *Task) volumesTree() *yaml11.Node {
	n := yaml11.NewMap()
	for _, dest := range slices.Sorted(maps.Keys(t.Volumes)) {
		v := t.Volumes[dest]
		if v.Name != "" && v.SubPath == "" && v.Type == "" && v.Labels == nil && v.Config == nil {
			n.Put(dest, v.Name)
			continue
		}
		m := yaml11.NewMap().PutText("name", v.Name).PutText("sub_path", v.SubPath).PutText("size", v.Size).PutText("type", v.Type)
		if v.Labels != nil {
			m.Put("labels", v.Labels)
		}
		if v.Config != nil {
			m.Put("config", v.Config)
		}
		n.Put(dest, m)
	}
	return n
}
