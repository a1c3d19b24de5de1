package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// candidates reads one map; several accelerators give several candidates.
func (b *builder) candidates(n *yaml11.Node, path string) ([]Resources, Preference) {
	r := Resources{
		Cloud:            strings.ToLower(textOf(n.Get("cloud"))),
		InstanceType:     textOf(n.Get("instance_type")),
		UseSpot:          boolOf(n.Get("use_spot")),
		DiskTier:         strings.ToLower(textOf(n.Get("disk_tier"))),
		NetworkTier:      strings.ToLower(textOf(n.Get("network_tier"))),
		MaxHourlyCost:    floatOf(n.Get("max_hourly_cost"), 0),
		EstimatedRuntime: floatOf(n.Get("estimated_runtime"), 0),
		Labels:           textMap(n.Get("labels")),
		Priority:         intPtr(n.Get("priority")),
		PriorityClass:    strings.TrimSpace(textOf(n.Get("priority_class"))),
	}
	r.Region, r.Regions = oneOrMore(n.Get("region"))
	r.Zone, r.Zones = oneOrMore(n.Get("zone"))
	if in := n.Get("infra"); in != nil {
		place, _ := ParseInfra(in.Text)
		r.Cloud, r.Region, r.Zone = place.Cloud, place.Region, place.Zone
	}
	if c := n.Get("cpus"); c != nil {
		r.CPUs, _ = ParseCPUs(c.NumberText())
	}
	if m := n.Get("memory"); m != nil {
		r.Memory, _ = ParseMemory(m.NumberText())
	}
	if d := n.Get("disk_size"); d != nil {
		r.setDiskSize(d.NumberText())
	}
	if d := n.Get("ephemeral_storage"); d != nil {
		r.EphemeralStorage, _ = ParseDiskSize(d.NumberText())
	}
	if d := n.Get("local_disk"); d != nil {
		r.LocalDisk, _ = ParseLocalDisk(d.NumberText())
	}
	r.AcceleratorArgs = mapOfAny(n.Get("accelerator_args"))
	r.JobRecovery = jobRecoveryOf(n.Get("job_recovery"))
	r.ImageID = b.image(n.Get("image_id"), join(path, "image_id"))
	r.Ports = portsOf(n.Get("ports"))
	r.Volumes = b.gcpVolumes(n.Get("volumes"), join(path, "volumes"))
	r.Autostop = b.autostop(n.Lookup("autostop"))
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	for _, e := range n.Entries {
		if strings.HasPrefix(e.Key.Text, "_") && !e.Value.IsNull() {
			if r.Internal == nil {
				r.Internal = map[string]any{}
			}
			r.Internal[e.Key.Text] = e.Value.Any()
		}
	}
	return b.withAccelerators(r, n, path)
}

func (b *builder) withAccelerators(r Resources, n *yaml11.Node, path string) ([]Resources, Preference) {
	if n.Get("accelerators") != nil && n.Get("gpus") != nil {
		b.at(n.Key("gpus"), join(path, "gpus"), "accelerators and gpus are the same field; remove one")
		return nil, AnyOf
	}
	acc := acceleratorNode(n)
	choices, pref := b.accelerators(acc, join(path, "accelerators"))
	if len(choices) == 0 {
		return []Resources{r}, AnyOf
	}
	var out []Resources
	for _, a := range choices {
		c := r.clone()
		c.Accelerators = []Accelerator{a}
		out = append(out, c)
	}
	return out, pref
}

// accelerators reads every form of the field: one, a set, or a list in order
// of preference. Doubles collapse.
func (b *builder) accelerators(n *yaml11.Node, path string) ([]Accelerator, Preference) {
	var out []Accelerator
	add := func(at *yaml11.Node, key string, count *yaml11.Node) {
		a, counted, err := readAccelerator(key)
		if err != nil {
			b.at(at, path, "%s %s", path, err)
			return
		}
		if count != nil && !count.IsNull() {
			if counted {
				b.at(count, path, "%s gives the count of %s twice", path, a.Name)
				return
			}
			a.Count = floatOf(count, 1)
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	switch {
	case n == nil:
		return nil, AnyOf
	case n.IsScalar():
		add(n, n.Text, nil)
		return out, AnyOf
	case n.Kind == yaml11.Map:
		for _, e := range n.Entries {
			add(e.Key, e.Key.Text, e.Value)
		}
		return out, AnyOf
	}
	for _, item := range n.Items {
		if item.Kind == yaml11.Map {
			add(item.Entries[0].Key, item.Entries[0].Key.Text, item.Entries[0].Value)
		} else {
			add(item, item.Text, nil)
		}
	}
	return out, Ordered
}

func (r Resources) clone() Resources {
	r.Labels = maps.Clone(r.Labels)
	r.Internal = maps.Clone(r.Internal)
	r.ImageID = maps.Clone(r.ImageID)
	r.Ports = slices.Clone(r.Ports)
	return r
}

func oneOrMore(n *yaml11.Node) (string, []string) {
	if n == nil || n.IsScalar() {
		return textOf(n), nil
	}
	if len(n.Items) == 1 {
		return n.Items[0].Text, nil
	}
	var all []string
	for _, item := range n.Items {
		all = append(all, item.Text)
	}
	return "", all
}

// DefaultDiskSize, in GB, is what a DiskSize of 0 stands for.
const DefaultDiskSize = 256

func (r *Resources) setDiskSize(s string) {
	r.DiskSize, _ = ParseDiskSize(s)
	if r.DiskSize == DefaultDiskSize {
		r.DiskSize = 0
	}
}

// jobRecoveryOf reads a strategy or a map; "none" clears the field.
func jobRecoveryOf(n *yaml11.Node) *JobRecovery {
	if n == nil {
		return nil
	}
	jr := &JobRecovery{}
	if n.IsScalar() {
		jr.Strategy = strings.ToUpper(strings.TrimSpace(n.Text))
	} else {
		jr.Strategy = strings.ToUpper(textOf(n.Get("strategy")))
		jr.MaxRestartsOnErrors = intOf(n.Get("max_restarts_on_errors"))
		if codes := n.Get("recover_on_exit_codes"); codes != nil {
			if codes.IsScalar() {
				jr.RecoverOnExitCodes = []int{intOf(codes)}
			}
			for _, c := range codes.Items {
				jr.RecoverOnExitCodes = append(jr.RecoverOnExitCodes, intOf(c))
			}
		}
		for _, e := range n.Entries {
			if !slices.Contains([]string{"strategy", "max_restarts_on_errors", "recover_on_exit_codes"}, e.Key.Text) {
				if jr.Extra == nil {
					jr.Extra = map[string]any{}
				}
				jr.Extra[e.Key.Text] = e.Value.Any()
			}
		}
	}
	if jr.Strategy == "NONE" {
		return nil
	}
	return jr
}

func (b *builder) image(n *yaml11.Node, path string) map[string]string {
	if n == nil {
		return nil
	}
	if n.IsScalar() {
		return imageOf(n.Text)
	}
	out := map[string]string{}
	for _, e := range n.Entries {
		image := strings.TrimSpace(e.Value.Text)
		if e.Key.IsNull() { // null stands for every region
			every := imageOf(image)
			if _, container := every["docker"]; !container || n.Get("docker") == nil {
				maps.Copy(out, every)
				continue
			}
		}
		if e.Key.Text == "docker" {
			image = strings.TrimPrefix(image, "docker:")
		} else if strings.HasPrefix(image, "docker:") && n.Get("docker") != nil {
			b.at(e.Value, path, "%s names a container twice: under docker and for %s; keep one of them", path, e.Key.Text)
		}
		out[e.Key.Text] = image
	}
	return out
}

func imageOf(s string) map[string]string {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil
	}
	if image, ok := strings.CutPrefix(s, "docker:"); ok {
		return map[string]string{"docker": image}
	}
	return map[string]string{"": s}
}

func portsOf(n *yaml11.Node) []string {
	if n == nil {
		return nil
	}
	var texts []string
	if n.IsScalar() {
		texts = []string{n.NumberText()}
	}
	for _, item := range n.Items {
		texts = append(texts, item.NumberText())
	}
	ports, _ := ParsePorts(texts...)
	return ports
}

func (b *builder) gcpVolumes(n *yaml11.Node, path string) []map[string]any {
	if n == nil {
		return nil
	}
	var out []map[string]any
	for i, item := range n.Items {
		v := mapOfAny(item)
		if v["storage_type"] == "instance" {
			if v["name"] != nil {
				b.warn("%s[%d]: a disk inside the machine has no name; %q is ignored", path, i, v["name"])
				delete(v, "name")
			}
		} else if v["name"] == nil {
			b.at(item, fmt.Sprintf("%s[%d]", path, i), "%s[%d] is a network disk, so it needs a name (or storage_type: instance)", path, i)
		}
		out = append(out, v)
	}
	return out
}

// autostop reads a switch, a time or a map; null is absent.
func (b *builder) autostop(n *yaml11.Node) *Autostop {
	if n == nil || n.IsNull() {
		return nil
	}
	if n.Kind == yaml11.Map {
		return &Autostop{
			Enabled:     true,
			IdleMinutes: intOf(n.Get("idle_minutes")),
			Down:        boolOf(n.Get("down")) != nil && *boolOf(n.Get("down")),
			WaitFor:     strings.ToLower(textOf(n.Get("wait_for"))),
		}
	}
	switch x := n.Value.(type) {
	case bool:
		return &Autostop{Enabled: x}
	case int:
		if x < 0 {
			return &Autostop{}
		}
		return &Autostop{Enabled: true, IdleMinutes: x}
	}
	minutes, _ := ParseMinutes(n.NumberText())
	return &Autostop{Enabled: true, IdleMinutes: minutes}
}
