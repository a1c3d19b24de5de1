package kubernetes

import (
	"maps"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

var _ cloud.Configured = (*Provider)(nil)

// LacksWith is what pods cannot be asked for under a configuration: they can mount buckets
// if kubernetes.pod_config gives them the right to.
func (p *Provider) LacksWith(section map[string]any) map[cloud.Feature]string {
	lacks := p.Features().Lacks
	if podConfig, _ := section["pod_config"].(map[string]any); mayMount(podConfig) {
		lacks = maps.Clone(lacks)
		delete(lacks, cloud.FeatureStorage)
	}
	return lacks
}

// mayMount tells whether a pod with this configuration can mount file systems: its container
// is privileged, or it has the capability and a device plugin gives it /dev/fuse. In a user
// namespace of its own (hostUsers: false) the capability holds for that alone.
func mayMount(podConfig map[string]any) bool {
	main := obj{}
	for _, c := range asList(asObj(podConfig["spec"])["containers"]) {
		if name := asObj(c)["name"]; name == nil || name == mainContainer {
			main = asObj(c)
			break
		}
	}
	security := asObj(main["securityContext"])
	if privileged, _ := security["privileged"].(bool); privileged {
		return true
	}
	may, device := false, false
	for _, c := range asList(asObj(security["capabilities"])["add"]) {
		name, _ := c.(string)
		may = may || strings.TrimPrefix(strings.ToUpper(name), "CAP_") == "SYS_ADMIN"
	}
	for resource := range asObj(asObj(main["resources"])["limits"]) {
		device = device || strings.Contains(resource, "fuse")
	}
	return may && device
}
