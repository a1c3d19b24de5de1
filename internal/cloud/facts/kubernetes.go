package facts

import (
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
)

// Infrastructures of the user's own that code names where it means them.
const (
	Kubernetes = "kubernetes"
	SSH        = "ssh"
	Slurm      = "slurm"
	Engine     = "docker" // containers on the machine of the API server
)

var kubernetes = Cloud{
	Name: Kubernetes, Display: "Kubernetes", Regions: "contexts", Proven: "on one real cluster", Aliases: []string{"k8s"}, Hardware: Own, Pods: true,
	Prices:  &Prices{Refresh: 7 * time.Hour, Beside: []string{Images}, CPUs: 2, MemoryPerCPU: 1},
	Volumes: []string{"k8s-pvc", "k8s-hostpath"},
	Notices: PodEnding,
	Label:   podLabel,
	Settings: func() *schema.Spec {
		return schema.Section("Kubernetes.",
			append([]schema.Key{
				schema.New("allowed_contexts", schema.List("Contexts to use, or all; absent: the current one.", schema.Text("A context.")).Or(schema.TextKind).Words("all").ByAdmins(schema.Confines)),
				schema.New("context_configs", schema.Dict("Settings of single contexts.", plainly(schema.Section("A context.", contextKeys()...).ForNewer()))),
			}, contextKeys()...)...,
		).ForNewer()
	},
	Workspace: func() *schema.Spec {
		queues := append(queueKeys(), kubernetesIdentity())
		return schema.Section("Kubernetes in this workspace.", append([]schema.Key{
			schema.New("allowed_contexts", schema.List("Contexts to use, or all.", schema.Text("A context.")).Or(schema.TextKind).Words("all")),
			schema.New("context_configs", schema.Dict("Settings of single contexts.", schema.Section("A context.", queues...))),
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

func podConfig() *schema.Spec {
	return schema.Anything("Patch for the pod specification.").MapOnly().ForTasks().Patched()
}

func customMetadata() *schema.Spec {
	return schema.Anything("Metadata of everything that is created.").MapOnly().ForTasks().Patched().
		Without("sky names what it creates itself; remove it", "name", "namespace")
}

func queueKeys() []schema.Key {
	return []schema.Key{
		schema.New("namespace", schema.Text("Namespace of pods; absent: the one in the kubeconfig.").ByAdmins(schema.Rights)),
		schema.New("kueue", schema.Section("Kueue.",
			schema.New("local_queue_name", schema.Text("Queue of jobs.")),
			schema.New("admission_timeout", schema.Whole("Seconds to wait until the queue admits pods; provision_timeout begins then. -1: for ever.").AtLeast(-1).Defaults(86400))).ForTasks()),
		schema.New("quota", schema.Section("Quotas.", schema.New("queue", schema.Text("Queue of jobs; wins over kueue.local_queue_name."))).Opened().ForTasks()),
	}
}

// contextKeys are what both kubernetes and each of its contexts have.
func contextKeys() []schema.Key {
	return append(queueKeys(),
		schema.New("allowed_nodes", schema.Section("Nodes to use; one that matches any of these is allowed.",
			schema.New("label_selector", schema.Dict("Labels that all match.", schema.Text("A label's value."))),
			schema.New("names", schema.List("Names of nodes.", schema.Text("A node."))),
			schema.New("ips", schema.List("Addresses of nodes.", schema.Text("An address.")))).ByAdmins(schema.Confines)),
		schema.New("networking", schema.Choice("How pods are reached.", "nodeport", "portforward").Instead("remove it; pods are reached through the Kubernetes API")),
		schema.New("ports", schema.Choice("How ports are opened.", "loadbalancer", "ingress", "podip").Defaults("loadbalancer")),
		schema.New("pod_config", podConfig()),
		schema.New("mount_broker", schema.YesNo("Let pods mount buckets by the broker of sky-mount on their machine, which somebody has installed (docs/kubernetes.md).", false)),
		schema.New("custom_metadata", customMetadata()),
		schema.New("provision_timeout", schema.Whole("Seconds to wait for pods to be scheduled; -1: for ever.").Defaults(10).ForTasks()),
		schema.New("autoscaler", schema.Choice("What adds nodes to the cluster.", "gke", "karpenter", "coreweave", "nebius", "generic")),
		schema.New("high_availability", schema.Section("Controllers that survive their node.",
			schema.New("storage_class_name", schema.Text("Storage class of their volumes."))).NoEffect("managed jobs outlive the server and its machine anyway")),
		schema.New("dws", schema.Section("GKE's Dynamic Workload Scheduler.",
			schema.New("enabled", schema.YesNo("Whether to use it.", false)),
			schema.New("max_run_duration", schema.Text("How long pods may run.").Or(schema.IntKind))).ForTasks()),
		schema.New("max_inline_command_length", schema.Whole("Bytes of a command that is sent in a URL; a longer one is sent as a file.").AtLeast(1024).Defaults(32768).
			NoEffect("commands go to an agent in the pod, whatever their length")),
		schema.New("rdma", schema.Section("Cards for RDMA that pods get from a device plugin.",
			schema.New("mode", schema.Choice("How they are shared.", "sriov")),
			schema.New("resource", schema.Text("The resource of Kubernetes that stands for one.")),
			schema.New("networks", schema.Text("Networks of Multus.").Or(schema.ListKind).Of(schema.Text("A network.")))).
			NoEffect("ask for the resource, and name the networks, in pod_config")),
		kubernetesIdentity(),
		runCommands(),
		schema.New("apt_mirrors", schema.List("Mirrors to install packages from; an empty list keeps the image's own.",
			schema.Text("A host name.").Matching(schema.Regexp(`^[a-zA-Z0-9.-]+$`, "a host name"))).Defaults([]any{"mirrors.wikimedia.org", "mirror.umd.edu"}).NoEffect("sky installs no packages in pods")),
		schema.New("set_pod_resource_limits", schema.YesNo("Limit pods to what they request, or to that many times as much.", false).Or(schema.NumberKind).AtLeast(1).ForTasks()),
		schema.New("pricing", pricing()),
		schema.New("auto_mounts", schema.List("Volumes that every pod mounts.", schema.Section("A volume.",
			schema.New("volume_name", schema.Text("Its name.")),
			schema.New("mount_paths", schema.List("Where it appears.", schema.Text("A path.").Matching(schema.Regexp(`^(/|~/|~$)`, "a path that begins with / or ~")))),
			schema.New("scope", schema.Choice("Whose pods mount it.", "personal", "workspace", "global").Defaults("global")),
		).Needs("volume_name", "mount_paths")).NoEffect("name the volume under volumes of each task")),
		schema.New("enable_docker", &schema.Spec{Doc: "Let pods run or build containers.", Default: false,
			Kinds: schema.BoolKind | schema.TextKind | schema.MapKind, Enum: []string{"ALL", "BUILD"}, TaskMay: true,
			Keys: []schema.Key{
				schema.New("mode", schema.Choice("What pods may do.", "ALL", "BUILD")),
				schema.New("cache_volume", schema.Text("Volume that keeps images.")),
			}}),
	)
}

func kubernetesIdentity() schema.Key {
	return schema.New("remote_identity", schema.Text("Whose credentials pods get: SERVICE_ACCOUNT, LOCAL_CREDENTIALS, NO_UPLOAD or the name of a service account.").
		PerRegion(schema.TextKind).Defaults(serviceAccount).ForTasks())
}

// plainly ends the special merging of layers under s.
func plainly(s *schema.Spec) *schema.Spec {
	for _, k := range s.Keys {
		k.Patch = false
	}
	return s
}
