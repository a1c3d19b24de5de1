package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// candidates reads one map; several accelerators give several candidates.
func (b *builder) candidates(n *node, path string) ([]Resources, Preference) {
	r := Resources{
		Cloud:         strings.ToLower(textOf(n.get("cloud"))),
		InstanceType:  textOf(n.get("instance_type")),
		UseSpot:       boolOf(n.get("use_spot")),
		DiskTier:      strings.ToLower(textOf(n.get("disk_tier"))),
		NetworkTier:   strings.ToLower(textOf(n.get("network_tier"))),
		MaxHourlyCost: floatOf(n.get("max_hourly_cost"), 0),
		Labels:        textMap(n.get("labels")),
		Priority:      intPtr(n.get("priority")),
		PriorityClass: strings.TrimSpace(textOf(n.get("priority_class"))),
	}
	r.Region, r.Regions = oneOrMore(n.get("region"))
	r.Zone, r.Zones = oneOrMore(n.get("zone"))
	if in := n.get("infra"); in != nil {
		place, _ := ParseInfra(in.text)
		r.Cloud, r.Region, r.Zone = place.Cloud, place.Region, place.Zone
	}
	if c := n.get("cpus"); c != nil {
		r.CPUs, _ = ParseCPUs(c.numberText())
	}
	if m := n.get("memory"); m != nil {
		r.Memory, _ = ParseMemory(m.numberText())
	}
	if d := n.get("disk_size"); d != nil {
		r.setDiskSize(d.numberText())
	}
	if d := n.get("ephemeral_storage"); d != nil {
		r.EphemeralStorage, _ = ParseDiskSize(d.numberText())
	}
	if d := n.get("local_disk"); d != nil {
		r.LocalDisk, _ = ParseLocalDisk(d.numberText())
	}
	r.AcceleratorArgs = mapOfAny(n.get("accelerator_args"))
	r.JobRecovery = jobRecoveryOf(n.get("job_recovery"))
	r.ImageID = b.image(n.get("image_id"), join(path, "image_id"))
	r.Ports = portsOf(n.get("ports"))
	r.Volumes = b.gcpVolumes(n.get("volumes"), join(path, "volumes"))
	r.Autostop = b.autostop(n.lookup("autostop"))
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	for _, e := range n.entries {
		if strings.HasPrefix(e.key.text, "_") && !e.val.isNull() {
			if r.Internal == nil {
				r.Internal = map[string]any{}
			}
			r.Internal[e.key.text] = e.val.any()
		}
	}
	return b.withAccelerators(r, n, path)
}

func (b *builder) withAccelerators(r Resources, n *node, path string) ([]Resources, Preference) {
	if n.get("accelerators") != nil && n.get("gpus") != nil {
		b.at(n.keyNode("gpus"), join(path, "gpus"), "accelerators and gpus are the same field; remove one")
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
func (b *builder) accelerators(n *node, path string) ([]Accelerator, Preference) {
	var out []Accelerator
	add := func(at *node, key string, count *node) {
		a, counted, err := readAccelerator(key)
		if err != nil {
			b.at(at, path, "%s %s", path, err)
			return
		}
		if count != nil && !count.isNull() {
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
	case n.kind == scalarNode:
		add(n, n.text, nil)
		return out, AnyOf
	case n.kind == mappingNode:
		for _, e := range n.entries {
			add(e.key, e.key.text, e.val)
		}
		return out, AnyOf
	}
	for _, item := range n.items {
		if item.kind == mappingNode {
			add(item.entries[0].key, item.entries[0].key.text, item.entries[0].val)
		} else {
			add(item, item.text, nil)
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

func oneOrMore(n *node) (string, []string) {
	if n == nil || n.kind == scalarNode {
		return textOf(n), nil
	}
	if len(n.items) == 1 {
		return n.items[0].text, nil
	}
	var all []string
	for _, item := range n.items {
		all = append(all, item.text)
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
func jobRecoveryOf(n *node) *JobRecovery {
	if n == nil {
		return nil
	}
	jr := &JobRecovery{}
	if n.kind == scalarNode {
		jr.Strategy = strings.ToUpper(strings.TrimSpace(n.text))
	} else {
		jr.Strategy = strings.ToUpper(textOf(n.get("strategy")))
		jr.MaxRestartsOnErrors = intOf(n.get("max_restarts_on_errors"))
		if codes := n.get("recover_on_exit_codes"); codes != nil {
			if codes.kind == scalarNode {
				jr.RecoverOnExitCodes = []int{intOf(codes)}
			}
			for _, c := range codes.items {
				jr.RecoverOnExitCodes = append(jr.RecoverOnExitCodes, intOf(c))
			}
		}
		for _, e := range n.entries {
			if !slices.Contains([]string{"strategy", "max_restarts_on_errors", "recover_on_exit_codes"}, e.key.text) {
				if jr.Extra == nil {
					jr.Extra = map[string]any{}
				}
				jr.Extra[e.key.text] = e.val.any()
			}
		}
	}
	if jr.Strategy == "NONE" {
		return nil
	}
	return jr
}

func (b *builder) image(n *node, path string) map[string]string {
	if n == nil {
		return nil
	}
	if n.kind == scalarNode {
		return imageOf(n.text)
	}
	out := map[string]string{}
	for _, e := range n.entries {
		image := strings.TrimSpace(e.val.text)
		if e.key.isNull() { // null stands for every region
			every := imageOf(image)
			if _, container := every["docker"]; !container || n.get("docker") == nil {
				maps.Copy(out, every)
				continue
			}
		}
		if e.key.text == "docker" {
			image = strings.TrimPrefix(image, "docker:")
		} else if strings.HasPrefix(image, "docker:") && n.get("docker") != nil {
			b.at(e.val, path, "%s names a container twice: under docker and for %s; keep one of them", path, e.key.text)
		}
		out[e.key.text] = image
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

func portsOf(n *node) []string {
	if n == nil {
		return nil
	}
	var texts []string
	if n.kind == scalarNode {
		texts = []string{n.numberText()}
	}
	for _, item := range n.items {
		texts = append(texts, item.numberText())
	}
	ports, _ := ParsePorts(texts...)
	return ports
}

func (b *builder) gcpVolumes(n *node, path string) []map[string]any {
	if n == nil {
		return nil
	}
	var out []map[string]any
	for i, item := range n.items {
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
func (b *builder) autostop(n *node) *Autostop {
	if n == nil || n.isNull() {
		return nil
	}
	if n.kind == mappingNode {
		return &Autostop{
			Enabled:     true,
			IdleMinutes: intOf(n.get("idle_minutes")),
			Down:        boolOf(n.get("down")) != nil && *boolOf(n.get("down")),
			WaitFor:     strings.ToLower(textOf(n.get("wait_for"))),
		}
	}
	switch x := n.value.(type) {
	case bool:
		return &Autostop{Enabled: x}
	case int:
		if x < 0 {
			return &Autostop{}
		}
		return &Autostop{Enabled: true, IdleMinutes: x}
	}
	minutes, _ := ParseMinutes(n.numberText())
	return &Autostop{Enabled: true, IdleMinutes: minutes}
}
