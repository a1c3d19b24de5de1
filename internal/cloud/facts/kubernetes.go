package facts

import (
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/config/keys"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Infrastructures of the user's own that code names where it means them.
const (
	Kubernetes = "kubernetes"
	SSH        = "ssh"
	Slurm      = "slurm"
)

var kubernetes = Cloud{
	Name: Kubernetes, Display: "Kubernetes", Proven: "on one real cluster", Aliases: []string{"k8s"}, Hardware: Own, Pods: true,
	Prices:  &Prices{Refresh: 7 * time.Hour, Beside: []string{Images}, CPUs: 2, MemoryPerCPU: 1},
	Volumes: []string{"k8s-pvc", "k8s-hostpath"},
	Notices: PodEnding,
	Label:   podLabel,
	Settings: func() *keys.Spec {
		return keys.Section("Kubernetes.",
			append([]keys.Key{
				keys.New("allowed_contexts", keys.List("Contexts to use, or all; absent: the current one.", keys.Text("A context.")).Or(keys.TextKind).Words("all").ByAdmins(keys.Confines)),
				keys.New("context_configs", keys.Dict("Settings of single contexts.", plainly(keys.Section("A context.", contextKeys()...).ForNewer()))),
			}, contextKeys()...)...,
		).ForNewer()
	},
	Workspace: func() *keys.Spec {
		queues := append(queueKeys(), kubernetesIdentity())
		return keys.Section("Kubernetes in this workspace.", append([]keys.Key{
			keys.New("allowed_contexts", keys.List("Contexts to use, or all.", keys.Text("A context.")).Or(keys.TextKind).Words("all")),
			keys.New("context_configs", keys.Dict("Settings of single contexts.", keys.Section("A context.", queues...))),
		}, queues...)...)
	},
	Narrower:    contextConfigs,
	Merge:       Patch,
	TaskExample: "{provision_timeout: 600}",
}

func contextConfigs(region, _ string) [][]string { return [][]string{{"context_configs", region}} }

var (
	podLabelKey   = lazyregexp.New(`^[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$`)
	podLabelValue = lazyregexp.New(`^([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?$`)
	dnsSubdomain  = lazyregexp.New(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

func podLabel(key, value string) string {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "", key
	}
	switch {
	case ok && (len(prefix) > 253 || !dnsSubdomain.MatchString(prefix)):
		return "what stands before the slash should be a domain name"
	case !podLabelKey.MatchString(name):
		return "a key has up to 63 lower-case letters, digits, - _ and ., beginning and ending with a letter or digit"
	case !podLabelValue.MatchString(value):
		return "a value has up to 63 letters, digits, - _ and ., beginning and ending with a letter or digit"
	}
	return ""
}

func podConfig() *keys.Spec {
	return keys.Anything("Patch for the pod specification.").MapOnly().ForTasks().Patched()
}

func customMetadata() *keys.Spec {
	return keys.Anything("Metadata of everything that is created.").MapOnly().ForTasks().Patched().
		Bans("sky names what it creates itself; remove it", "name", "namespace")
}

func queueKeys() []keys.Key {
	return []keys.Key{
		keys.New("namespace", keys.Text("Namespace of pods; absent: the one in the kubeconfig.").ByAdmins(keys.Rights)),
		keys.New("kueue", keys.Section("Kueue.", keys.New("local_queue_name", keys.Text("Queue of jobs."))).ForTasks()),
		keys.New("quota", keys.Section("Quotas.", keys.New("queue", keys.Text("Queue of jobs; wins over kueue.local_queue_name."))).Opened().ForTasks()),
	}
}

// contextKeys are what both kubernetes and each of its contexts have.
func contextKeys() []keys.Key {
	return append(queueKeys(),
		keys.New("allowed_nodes", keys.Section("Nodes to use; one that matches any of these is allowed.",
			keys.New("label_selector", keys.Dict("Labels that all match.", keys.Text("A label's value."))),
			keys.New("names", keys.List("Names of nodes.", keys.Text("A node."))),
			keys.New("ips", keys.List("Addresses of nodes.", keys.Text("An address.")))).ByAdmins(keys.Confines)),
		keys.New("networking", keys.Choice("How pods are reached.", "nodeport", "portforward").Instead("remove it; pods are reached through the Kubernetes API")),
		keys.New("ports", keys.Choice("How ports are opened.", "loadbalancer", "ingress", "podip").Defaults("loadbalancer")),
		keys.New("pod_config", podConfig()),
		keys.New("mount_broker", keys.YesNo("Let pods mount buckets by the broker of sky-mount on their machine, which somebody has installed (docs/kubernetes.md).", false)),
		keys.New("custom_metadata", customMetadata()),
		keys.New("provision_timeout", keys.Whole("Seconds to wait for pods to be scheduled; -1: for ever.").Defaults(10).ForTasks()),
		keys.New("autoscaler", keys.Choice("What adds nodes to the cluster.", "gke", "karpenter", "coreweave", "nebius", "generic")),
		keys.New("high_availability", keys.Section("Controllers that survive their node.",
			keys.New("storage_class_name", keys.Text("Storage class of their volumes."))).NoEffect("managed jobs outlive the server and its machine anyway")),
		keys.New("dws", keys.Section("GKE's Dynamic Workload Scheduler.",
			keys.New("enabled", keys.YesNo("Whether to use it.", false)),
			keys.New("max_run_duration", keys.Text("How long pods may run.").Or(keys.IntKind))).ForTasks()),
		kubernetesIdentity(),
		runCommands(),
		keys.New("apt_mirrors", keys.List("Mirrors to install packages from; an empty list keeps the image's own.",
			keys.Text("A host name.").Matching(keys.Regexp(`^[a-zA-Z0-9.-]+$`, "a host name"))).Defaults([]any{"mirrors.wikimedia.org", "mirror.umd.edu"}).NoEffect("sky installs no packages in pods")),
		keys.New("set_pod_resource_limits", keys.YesNo("Limit pods to what they request, or to that many times as much.", false).Or(keys.NumberKind).AtLeast(1).ForTasks()),
		keys.New("pricing", pricing()),
		keys.New("auto_mounts", keys.List("Volumes that every pod mounts.", keys.Section("A volume.",
			keys.New("volume_name", keys.Text("Its name.")),
			keys.New("mount_paths", keys.List("Where it appears.", keys.Text("A path.").Matching(keys.Regexp(`^(/|~/|~$)`, "a path that begins with / or ~")))),
		).Needs("volume_name", "mount_paths")).NoEffect("name the volume under volumes of each task")),
		keys.New("enable_docker", &keys.Spec{Doc: "Let pods run or build containers.", Default: false,
			Kinds: keys.BoolKind | keys.TextKind | keys.MapKind, Enum: []string{"ALL", "BUILD"}, TaskMay: true,
			Keys: []keys.Key{
				keys.New("mode", keys.Choice("What pods may do.", "ALL", "BUILD")),
				keys.New("cache_volume", keys.Text("Volume that keeps images.")),
			}}),
	)
}

func kubernetesIdentity() keys.Key {
	return keys.New("remote_identity", keys.Text("Whose credentials pods get: SERVICE_ACCOUNT, LOCAL_CREDENTIALS, NO_UPLOAD or the name of a service account.").
		PerRegion(keys.TextKind).Defaults(serviceAccount).ForTasks())
}

// plainly ends the special merging of layers under s.
func plainly(s *keys.Spec) *keys.Spec {
	for _, k := range s.Keys {
		k.Patch = false
	}
	return s
}
