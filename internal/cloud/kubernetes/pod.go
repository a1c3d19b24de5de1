package kubernetes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/proc"
)

// obj is an object, or a part of one, as the API takes it.
type obj = map[string]any

// What sky's things are called and labelled.
const (
	mainContainer = "ray-node"
	labelParent   = "parent"
	labelCluster  = "skypilot-cluster"
	labelRay      = "ray-cluster-name"
	labelRayType  = "ray-node-type"
	labelUser     = "skypilot-user"
	labelPart     = "component"
	labelBinpack  = "skypilot-binpack"
	kueueQueue    = "kueue.x-k8s.io/queue-name"
	kueueGroup    = "kueue.x-k8s.io/pod-group-name"
	kueueCount    = "kueue.x-k8s.io/pod-group-total-count"
	kueueRetry    = "kueue.x-k8s.io/retriable-in-group"
	kueueMaxRun   = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
	agentVolume   = "sky-agent"
)

// AgentDir is where agents' binaries are in a pod: a volume that whoever the
// image runs as may write to.
const AgentDir = "/opt/sky"

// A pod whose image has no shell gets one from another image: its first
// container copies it to where the agent will be.
const (
	shellContainer = "sky-shell"
	shellDir       = AgentDir + "/bin"
	// shellImage has one static program that is a shell and much besides.
	shellImage = "busybox:1.37-musl"
	copyShell  = "mkdir -p " + shellDir + " && cp /bin/busybox " + shellDir + "/ && " + shellDir + "/busybox --install -s " + shellDir
)

// shell is the shell that a pod was given; "": it has its image's own.
func (p *pod) shell() string {
	if slices.ContainsFunc(p.Spec.InitContainers, func(c container) bool { return c.Name == shellContainer }) {
		return shellDir + "/sh"
	}
	return ""
}

// exitGone is what a pod's first process ends with when the node gave itself
// back.
const exitGone = 77

// first is what keeps a pod alive. When the pod is taken away, it lets programs save
// what they have; it tells in its exit code when it is not wanted any more.
var first = proc.FirstProcess(agentapi.EndingDir+"/"+agentapi.EndingPID, fmt.Sprintf("trap 'exit %d' USR1\n", exitGone))

// maxEndGrace is how long the end of a pod is held up at most.
const maxEndGrace = 10 * time.Minute

// endGrace is how many seconds a pod has that is evicted; 0: what is usual.
func (w *podRequest) endGrace() int { return int(min(w.spec.EndGrace, maxEndGrace).Seconds()) }

// lastWords runs in a pod that is evicted, before its first process is told to
// end: it waits until the head's agent has run the hooks, or is no more.
const lastWords = `cd ` + agentapi.EndingDir + ` && echo %[1]d >` + agentapi.EndingFile + `
n=0
while [ ! -e ` + agentapi.EndedFile + ` ] && [ $n -lt %[1]d ] && kill -0 "$(cat ` + agentapi.EndingPID + ` 2>/dev/null)" 2>/dev/null; do sleep 1; n=$((n+1)); done`

var nameFormat = lazyregexp.New(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

func validName(name string) error {
	if len(name) > MaxNameLength || !nameFormat.MatchString(name) {
		return fmt.Errorf("%.50q cannot be a name here: it takes up to %d small letters, digits and hyphens, beginning with a letter", name, MaxNameLength)
	}
	return nil
}

// podName is what the pod of that rank is called; spare is for when somebody
// else's pod has that name.
func podName(id cloud.ClusterID, rank int, spare bool) string {
	name := id.Name
	if spare {
		sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
		name += fmt.Sprintf("-%x", sum[:3])
	}
	if rank == 0 {
		return name + "-head"
	}
	return name + "-worker" + strconv.Itoa(rank)
}

// stamp is what all of a cluster's things are labelled with.
func stamp(id cloud.ClusterID, user string) map[string]string {
	labels := map[string]string{labelParent: "skypilot", labelCluster: id.Name, labelUser: labelValue(user)}
	maps.Copy(labels, id.Tags())
	return labels
}

var notInLabels = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// labelValue makes a label's value of any text.
func labelValue(s string) string {
	s = notInLabels.ReplaceAllString(s, "-")
	return strings.Trim(s[:min(len(s), 63)], "-_.")
}

// podRequest is what a pod's description follows from.
type podRequest struct {
	spec    cloud.LaunchSpec
	conf    settings
	size    podSize
	devices placement
	runtime string // runtime class; "": the default
	shell   bool   // the image has none
	// waiting is since when the cluster has waited for nodes, if that was before its
	// pods were made; zero: it was not.
	waiting time.Time
	// network is joined with so many of its devices; nil: the ordinary one.
	network  *fabric
	adapters float64
}

// bringsShell reports whether the user's patch says that images have no shell, and
// where one is to come from.
func (s settings) bringsShell() bool {
	return slices.ContainsFunc(asList(asObj(s.PodConfig["spec"])["initContainers"]), func(c any) bool { return asObj(c)["name"] == shellContainer })
}

// placement is which nodes have the accelerator.
type placement struct {
	resource string   // by which it is counted
	label    string   // of nodes
	values   []string // any of these
	extra    map[string]string
}

// describe is the pod of that rank.
func (w *podRequest) describe(rank int, name string) obj {
	labels := map[string]string{}
	maps.Copy(labels, w.spec.NodeTags(rank))
	maps.Copy(labels, stamp(w.spec.ID, w.spec.User))
	labels[labelRay], labels[labelRayType], labels[labelPart] = w.spec.ID.Name, "worker", name
	if rank == 0 {
		labels[labelRayType] = "head"
	}
	annotations := map[string]string{"skypilot-cluster-name": w.spec.DisplayName}
	if !w.waiting.IsZero() {
		annotations[annotationWaiting] = w.waiting.UTC().Format(time.RFC3339)
	}
	if w.size.accelerators > 0 {
		labels[labelBinpack] = "gpu"
	}
	if queue := w.conf.Kueue.Queue; queue != "" {
		labels[kueueQueue], labels[kueueGroup] = queue, w.spec.ID.Name
		annotations[kueueRetry], annotations[kueueCount] = "false", strconv.Itoa(w.spec.Nodes)
		if w.spec.PriorityClass != "" {
			labels["kueue.x-k8s.io/priority-class"] = w.spec.PriorityClass
		}
		if seconds := w.maxRun(); seconds != "" {
			annotations[kueueMaxRun] = seconds
		}
	}
	spec := w.podSpec()
	if w.network != nil {
		w.network.connect(labels, spec, asObj(asList(spec["containers"])[0]), w.adapters)
	}
	if w.conf.MountBroker {
		addBroker(spec, asObj(asList(spec["containers"])[0]))
	}
	p := obj{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": obj{"name": name, "labels": texts(labels), "annotations": texts(annotations)},
		"spec":     spec,
	}
	p = merge(p, w.conf.PodConfig)
	if w.spec.Login != nil { // besides the user's own
		spec := p["spec"].(obj)
		spec["imagePullSecrets"] = append(asList(spec["imagePullSecrets"]), obj{"name": loginName(w.spec.ID)})
	}
	// Whatever the user patched, a pod stays findable and is what was asked for.
	meta := merge(p["metadata"].(obj), w.conf.Metadata)
	meta["name"] = name
	meta["labels"] = merge(asObj(meta["labels"]), texts(labels))
	p["metadata"] = meta
	if spec := asObj(p["spec"]); spec["runtimeClassName"] == "" {
		delete(spec, "runtimeClassName") // the user wants the machine's own, which has no name
	}
	return p
}

func asObj(v any) obj {
	o, _ := v.(obj)
	return o
}

func texts(m map[string]string) obj {
	out := obj{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func (w *podRequest) maxRun() string {
	if !w.conf.DWS.Enabled || w.conf.DWS.MaxRun == nil {
		return ""
	}
	return fmt.Sprint(w.conf.DWS.MaxRun)
}

func (w *podRequest) podSpec() obj {
	spec := obj{
		"restartPolicy": "Never",
		"containers":    []any{w.container()},
		"volumes": []any{
			obj{"name": "dshm", "emptyDir": obj{"medium": "Memory"}},
			obj{"name": agentVolume, "emptyDir": obj{}},
		},
		"affinity":           w.affinity(),
		"enableServiceLinks": false,
	}
	if w.shell {
		small := obj{"cpu": "10m", "memory": "16M"}
		spec["initContainers"] = []any{obj{
			"name": shellContainer, "image": shellImage, "command": []any{"/bin/sh", "-c", copyShell},
			"resources":    obj{"requests": small, "limits": small},
			"volumeMounts": []any{obj{"name": agentVolume, "mountPath": AgentDir}},
		}}
	}
	if account := w.conf.account(); account != "" {
		spec["serviceAccountName"] = account
	} else {
		spec["automountServiceAccountToken"] = false // it needs no rights
	}
	if seconds := w.endGrace(); seconds > 0 {
		spec["terminationGracePeriodSeconds"] = seconds + int(proc.Grace/time.Second) // hooks, then programs
	}
	if w.runtime != "" {
		spec["runtimeClassName"] = w.runtime
	}
	if w.spec.PriorityClass != "" && w.conf.Kueue.Queue == "" {
		spec["priorityClassName"] = w.spec.PriorityClass
	}
	selector := obj{}
	for k, v := range w.devices.extra {
		selector[k] = v
	}
	if w.conf.DWS.Enabled && w.conf.Kueue.Queue == "" {
		selector[gkeFlexKey] = "true" // with a queue, that asks for the machines
	}
	var tolerations []any
	if w.size.accelerators > 0 {
		tolerations = append(tolerations, w.toleration())
	}
	if w.spec.Offer.Spot {
		selector[gkeSpotKey] = "true"
		tolerations = append(tolerations, obj{"key": gkeSpotKey, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
	}
	if len(selector) > 0 {
		spec["nodeSelector"] = selector
	}
	if len(tolerations) > 0 {
		spec["tolerations"] = tolerations
	}
	w.addVolumes(spec)
	return spec
}

func (w *podRequest) toleration() obj {
	if w.devices.resource == tpuKey {
		return obj{"key": tpuKey, "operator": "Equal", "value": "present", "effect": "NoSchedule"}
	}
	return obj{"key": w.devices.resource, "operator": "Exists", "effect": "NoSchedule"}
}

func (w *podRequest) container() obj {
	requests := obj{"cpu": number(w.size.cpus), "memory": memoryG(w.size.memoryGB)}
	limits := obj{}
	if times := w.conf.limits(); times > 0 {
		limits["cpu"], limits["memory"] = number(w.size.cpus*times), memoryG(w.size.memoryGB*times)
	}
	if w.spec.EphemeralGB > 0 {
		requests["ephemeral-storage"] = fmt.Sprintf("%dG", w.spec.EphemeralGB)
		limits["ephemeral-storage"] = requests["ephemeral-storage"]
	}
	env := []any{}
	if w.size.accelerators > 0 {
		n := number(w.size.accelerators)
		requests[w.devices.resource], limits[w.devices.resource] = n, n
	} else {
		// Some runtimes show all GPUs to whoever does not ask.
		env = append(env, obj{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"})
	}
	res := obj{"requests": requests}
	if len(limits) > 0 {
		res["limits"] = limits
	}
	sh, script := "/bin/sh", links(w.spec.Volumes)+first
	if w.shell {
		sh, script = shellDir+"/sh", `PATH="$PATH:`+shellDir+"\"\n"+script
	}
	main := obj{
		"name": mainContainer, "image": imageOf(w.spec), "imagePullPolicy": "Always",
		"command": []any{sh, "-c", script}, "env": env, "resources": res,
		"volumeMounts": []any{
			obj{"name": "dshm", "mountPath": "/dev/shm"},
			obj{"name": agentVolume, "mountPath": AgentDir},
		},
	}
	if seconds := w.endGrace(); seconds > 0 {
		main["lifecycle"] = obj{"preStop": obj{"exec": obj{"command": []any{sh, "-c", fmt.Sprintf(lastWords, seconds)}}}}
	}
	return main
}

// memoryG writes gigabytes as the API takes them.
func memoryG(gb float64) string {
	if gb == math.Trunc(gb) {
		return number(gb) + "G"
	}
	return strconv.FormatInt(int64(math.Ceil(gb*1000)), 10) + "M"
}

func imageOf(spec cloud.LaunchSpec) string {
	image := strings.TrimPrefix(spec.ImageID, "docker:")
	if image == "" || strings.HasPrefix(image, "skypilot:") {
		return DefaultImage
	}
	return spec.Login.Image(image)
}

// affinity puts the pod on nodes that have what it wants and may be used, and
// spreads or packs it among those.
func (w *podRequest) affinity() obj {
	var terms []any // any of these
	allowed := w.conf.AllowedNodes
	want := func(key string, values ...string) obj {
		return obj{"key": key, "operator": "In", "values": anys(values)}
	}
	for _, key := range slices.Sorted(maps.Keys(allowed.Labels)) {
		terms = append(terms, obj{"matchExpressions": []any{want(key, allowed.Labels[key])}})
	}
	if len(allowed.Names) > 0 {
		terms = append(terms, obj{"matchExpressions": []any{want("kubernetes.io/hostname", allowed.Names...)}})
	}
	out := obj{}
	nodes := obj{}
	if w.size.accelerator != "" && w.devices.label != "" {
		device := want(w.devices.label, w.devices.values...)
		if len(terms) == 0 {
			terms = []any{obj{}}
		}
		for i, t := range terms {
			terms[i] = obj{"matchExpressions": append(asList(t.(obj)["matchExpressions"]), device)}
		}
		out["podAffinity"] = obj{"preferredDuringSchedulingIgnoredDuringExecution": []any{obj{"weight": 1, "podAffinityTerm": obj{
			"labelSelector": obj{"matchLabels": obj{labelBinpack: "gpu"}}, "topologyKey": "kubernetes.io/hostname"}}}}
	}
	if w.size.accelerator == "" {
		var avoid []any
		for i, f := range formatters {
			for _, key := range f.keys {
				avoid = append(avoid, obj{"weight": len(formatters) - i, "preference": obj{"matchExpressions": []any{obj{"key": key, "operator": "DoesNotExist"}}}})
			}
		}
		nodes["preferredDuringSchedulingIgnoredDuringExecution"] = avoid
	}
	if len(terms) > 0 {
		nodes["requiredDuringSchedulingIgnoredDuringExecution"] = obj{"nodeSelectorTerms": terms}
	}
	if len(nodes) > 0 {
		out["nodeAffinity"] = nodes
	}
	if w.spec.Nodes > 1 {
		out["podAntiAffinity"] = obj{"preferredDuringSchedulingIgnoredDuringExecution": []any{obj{"weight": 100, "podAffinityTerm": obj{
			"labelSelector": obj{"matchLabels": obj{cloud.TagCluster: w.spec.ID.Name}}, "topologyKey": "kubernetes.io/hostname"}}}}
	}
	return out
}

func asList(v any) []any {
	l, _ := v.([]any)
	return slices.Clone(l)
}

func anys(s []string) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // made here, of what JSON has
	}
	return string(b)
}
