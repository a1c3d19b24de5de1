package config

import (
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Scope says for whom a cloud's settings are looked up. What is left empty
// narrows nothing.
type Scope struct {
	Cloud     string // lower case
	Workspace string // default: the active one
	Region    string // a region, Kubernetes context, SSH pool or Slurm cluster
	Partition string // of Slurm
	Cluster   string // display name, for lists by cluster name
}

// Settings are the settings of a cloud as they hold in a [Scope]. A value is
// taken from the narrowest place that has one: the context in the workspace,
// the workspace, the partition, the region or context, the cloud.
type Settings struct {
	c     *Config
	scope Scope
	// written: values that differ by region or by cluster stay as they are written.
	written bool
}

// For returns the settings of s.Cloud in s. A cloud without a section has none.
func (c *Config) For(s Scope) Settings {
	if s.Workspace == "" {
		s.Workspace = c.ActiveWorkspace()
	}
	s.Region = facts.Of(s.Cloud).RegionName(s.Region)
	return Settings{c: c, scope: s}
}

// Sections returns the cloud's sections by region, everything else as in s.
func (c *Config) Sections(s Scope) func(region string) map[string]any {
	return func(region string) map[string]any {
		at := s
		at.Region = region
		return c.For(at).Section()
	}
}

// Get returns the value under a path below the cloud's section, defaults not
// considered.
func (s Settings) Get(path ...string) (any, bool) {
	n := s.resolve(path)
	return n.Any(), n != nil
}

// OnlyAllowedContexts is true in the section of Kubernetes of a configuration that
// is [Config.Confined]: a context that allowed_contexts does not let be used cannot
// be named either.
const OnlyAllowedContexts = "only_allowed_contexts"

// Confined is the configuration for a caller who may use of a cloud only what the
// server's settings list, even where others may name more.
func (c *Config) Confined() *Config {
	out := *c
	out.confined = true
	return &out
}

// Section returns the cloud's whole section as it holds in the scope. What
// nobody set is absent, and so is what is about other regions. The queue of a
// Kubernetes scope is under kueue.local_queue_name, wherever it was named.
func (s Settings) Section() map[string]any {
	out := map[string]any{}
	for _, spec := range []*Spec{Keys().At(s.scope.Cloud), Keys().At("workspaces", "<any>", s.scope.Cloud)} {
		if spec == nil {
			continue
		}
		for _, k := range spec.Keys {
			switch k.Name {
			case "context_configs", "region_configs", "cluster_configs", "quota", "kueue":
				continue
			}
			if v, ok := s.Get(k.Name); ok {
				out[k.Name] = v
			}
		}
	}
	if s.scope.Cloud == facts.Kubernetes {
		if s.c.confined {
			out[OnlyAllowedContexts] = true
		}
		if queue := s.c.Queue(s.scope); queue != "" {
			kueue := map[string]any{"local_queue_name": queue}
			if limit, ok := s.Get("kueue", "admission_timeout"); ok {
				kueue["admission_timeout"] = limit
			}
			out["kueue"] = kueue
		}
	}
	return out
}

// Written is Section for who looks up regions and clusters later: a value that differs by
// them is the map, or the list, that the configuration has.
func (s Settings) Written() map[string]any {
	s.written = true
	return s.Section()
}

// Origin says where the value under a path was written.
func (s Settings) Origin(path ...string) Origin {
	if n := s.resolve(path); n != nil {
		return originOf(n.Place)
	}
	return Origin{}
}

// Value and its siblings are those of [Config], below the cloud's section.
func (s Settings) Value(path ...string) any      { return s.inForce(path).Any() }
func (s Settings) Text(path ...string) string    { return asText(s.inForce(path)) }
func (s Settings) Bool(path ...string) bool      { return s.inForce(path).IsTrue() }
func (s Settings) Int(path ...string) int        { return int(s.inForce(path).Number()) }
func (s Settings) Float(path ...string) float64  { return s.inForce(path).Number() }
func (s Settings) Texts(path ...string) []string { return asTexts(s.inForce(path)) }
func (s Settings) Path(path ...string) string    { return expand(s.Text(path...), s.c.home) }
func (s Settings) TextMap(path ...string) map[string]string {
	n := s.inForce(path)
	if n == nil || n.Kind != Map {
		return nil
	}
	out := make(map[string]string, len(n.Entries))
	for _, e := range n.Entries {
		out[e.Key.Text] = asText(e.Value)
	}
	return out
}

// ProxyRegions are the regions to whose machines ssh_proxy_command names a way; some is
// false if it does not tell regions apart.
func (s Settings) ProxyRegions() (regions []string, some bool) {
	n := s.pick([]string{"ssh_proxy_command"})
	if n == nil || n.Kind != Map {
		return nil, false
	}
	for _, e := range n.Entries {
		regions = append(regions, e.Key.Text)
	}
	return regions, true
}

func (s Settings) inForce(path []string) *yaml11.Node {
	spec := s.spec(path)
	if spec == nil {
		if Keys().Find(s.scope.Cloud) != nil {
			panic("config: there is no key " + s.scope.Cloud + "." + strings.Join(path, "."))
		}
		return nil
	}
	return orDefault(s.resolve(path), spec)
}

// spec describes the key, as the cloud's section has it or else as workspaces
// do.
func (s Settings) spec(path []string) *Spec {
	if spec := Keys().At(s.scope.Cloud).At(path...); spec != nil && spec != schema.Free {
		return spec
	}
	if spec := Keys().At("workspaces", "<any>", s.scope.Cloud).At(path...); spec != nil {
		return spec
	}
	return Keys().At(s.scope.Cloud).At(path...)
}

// resolve picks the value and settles the forms by region and by cluster.
func (s Settings) resolve(path []string) *yaml11.Node {
	n := s.pick(path)
	spec := s.spec(path)
	if n == nil || spec == nil {
		return n
	}
	switch {
	case s.written:
	case spec.ByRegion && n.Kind == Map:
		n = n.Lookup(s.scope.Region)
	case spec.ByCluster && n.Kind == List:
		n = byCluster(n, s.scope.Cluster)
	}
	if n != nil && n.Kind == Null {
		return nil
	}
	return n
}

// pick returns the value from the narrowest place that has one. Kubernetes
// contexts patch the maps of the section; maps of Slurm, and prices, merge one
// level deep.
func (s Settings) pick(path []string) *yaml11.Node {
	for _, section := range s.inWorkspace() {
		if n := present(section.Find(path...)); n != nil {
			return n
		}
	}
	value := present(s.c.root.Find(append([]string{s.scope.Cloud}, path...)...))
	merge := facts.Of(s.scope.Cloud).Merge
	for _, section := range s.inRegion() {
		n := present(section.Find(path...))
		switch {
		case n == nil:
		case value == nil || n.Kind != Map || value.Kind != Map:
			value = n
		case merge == facts.OneLevel || path[0] == "pricing":
			value = oneLevel(value, n)
		case merge == facts.Patch:
			value = patch(value, n)
		default:
			value = n
		}
	}
	return value
}

// inWorkspace returns the workspace's sections about the cloud, narrowest
// first.
func (s Settings) inWorkspace() []*yaml11.Node {
	w := s.c.root.Find("workspaces", s.scope.Workspace, s.scope.Cloud)
	if w == nil {
		return nil
	}
	return []*yaml11.Node{w.Find("context_configs", s.scope.Region), w}
}

// inRegion returns the sections of the region, widest first.
func (s Settings) inRegion() []*yaml11.Node {
	if s.scope.Region == "" {
		return nil
	}
	narrower := facts.Of(s.scope.Cloud).Narrower
	if narrower == nil {
		return nil
	}
	var out []*yaml11.Node
	for _, path := range narrower(s.scope.Region, s.scope.Partition) {
		out = append(out, s.c.root.Find(append([]string{s.scope.Cloud}, path...)...))
	}
	return out
}

func present(n *yaml11.Node) *yaml11.Node {
	if n != nil && n.Kind == Null {
		return nil
	}
	return n
}

func oneLevel(base, over *yaml11.Node) *yaml11.Node {
	for _, e := range over.Entries {
		base = base.With(e.Key.Text, e.Key.Place, e.Value)
	}
	return base
}
