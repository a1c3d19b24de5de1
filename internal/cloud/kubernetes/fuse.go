package kubernetes

import (
	"maps"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

var (
	_ cloud.Configured     = (*Provider)(nil)
	_ cloud.MountExplainer = (*Provider)(nil)
)

// LacksWith is what pods cannot be asked for under a configuration.
func (p *Provider) LacksWith(section map[string]any) map[cloud.Feature]string {
	lacks := p.Features().Lacks
	if p.MountsBy(section) != "" {
		lacks = maps.Clone(lacks)
		delete(lacks, cloud.FeatureStorage)
	}
	return lacks
}

// MountsBy is which of the ways to mount buckets pods have: by themselves if
// kubernetes.pod_config gives them the right to, also in a user namespace of their own
// (hostUsers: false), where that holds for the namespace alone; else by the broker of
// sky-mount on their machine (kubernetes.mount_broker).
func (p *Provider) MountsBy(section map[string]any) string {
	podConfig, _ := section["pod_config"].(map[string]any)
	broker, _ := section["mount_broker"].(bool)
	right := mountRight(podConfig)
	switch users, set := asObj(podConfig["spec"])["hostUsers"].(bool); {
	case right != "" && set && !users:
		return "pods mount buckets by themselves, in a user namespace of their own (hostUsers: false) where their container " + right
	case right != "":
		return "pods mount buckets by themselves: their container " + right + " (kubernetes.pod_config)"
	case broker:
		return "the broker of sky-mount on each machine mounts buckets in pods, which need no privileges (kubernetes.mount_broker)"
	}
	return ""
}

// The broker's folder on machines, and in pods; see mount.BrokerDir.
const (
	brokerDir    = "/run/sky-mount"
	brokerVolume = "sky-mount-broker"
)

// addBroker lets a described pod reach the broker on its machine, whenever that starts.
func addBroker(spec, main obj) {
	spec["volumes"] = append(asList(spec["volumes"]), obj{"name": brokerVolume, "hostPath": obj{"path": brokerDir, "type": "DirectoryOrCreate"}})
	main["volumeMounts"] = append(asList(main["volumeMounts"]), obj{"name": brokerVolume, "mountPath": brokerDir, "readOnly": true})
}

// mountRight is what lets a pod with this configuration mount file systems: its container
// is privileged, or it has the capability and a device plugin gives it /dev/fuse; "":
// nothing does.
func mountRight(podConfig map[string]any) string {
	main := obj{}
	for _, c := range asList(asObj(podConfig["spec"])["containers"]) {
		if name := asObj(c)["name"]; name == nil || name == mainContainer {
			main = asObj(c)
			break
		}
	}
	security := asObj(main["securityContext"])
	if privileged, _ := security["privileged"].(bool); privileged {
		return "is privileged"
	}
	may, device := false, false
	for _, c := range asList(asObj(security["capabilities"])["add"]) {
		name, _ := c.(string)
		may = may || strings.TrimPrefix(strings.ToUpper(name), "CAP_") == "SYS_ADMIN"
	}
	for resource := range asObj(asObj(main["resources"])["limits"]) {
		device = device || strings.Contains(resource, "fuse")
	}
	if !may || !device {
		return ""
	}
	return "has the capability SYS_ADMIN and a fuse device"
}
