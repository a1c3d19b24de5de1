package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

var here = cloud.Place{Cloud: Name, Region: "here"}

func podOf(t testing.TB, text string) *pod {
	t.Helper()
	p := &pod{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	p.Metadata.Name = "web-head"
	return p
}

func waiting(reason, message string) string {
	return fmt.Sprintf(`{"spec":{"nodeName":"n1","containers":[{"name":"ray-node","image":"img:1"}]},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}],
		"containerStatuses":[{"name":"ray-node","state":{"waiting":{"reason":%q,"message":%q}}}]}}`, reason, message)
}

// pulling is waiting with a Secret to pull with.
func pulling(reason, message, secret string) string {
	return strings.Replace(waiting(reason, message), `"spec":{`, fmt.Sprintf(`"spec":{"imagePullSecrets":[{"name":%q}],`, secret), 1)
}

func over(phase, reason, message, status string) string {
	return fmt.Sprintf(`{"spec":{"nodeName":"n1"},"status":{"phase":%q,"reason":%q,"message":%q,"containerStatuses":[%s]}}`, phase, reason, message, status)
}

func TestWhatAPodThatIsWaitedForMeans(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pod   string
		since time.Duration
		stage stage
		is    func(error) bool
		says  string
	}{
		{"fresh", `{"status":{"phase":"Pending"}}`, 0, unscheduled, none, "given a node"},
		{"no room", `{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes: Insufficient cpu"}]}}`, 0, unscheduled, none, "Insufficient cpu"},
		{"held by a queue", `{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}}`, 0, unscheduled, none, "queue"},
		{"held by Kueue", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"}},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}}`, 0, queued, none, "queue (q"},
		{"creating", waiting("ContainerCreating", ""), 0, starting, none, "start on n1"},
		{"a registry that does not answer", waiting("ErrImagePull", "dial tcp: i/o timeout"), time.Second, starting, none, "img:1"},
		{"a registry that does not answer for long", waiting("ImagePullBackOff", "Back-off pulling image"), time.Hour, failed, is[*cloud.UnreachableError], "img:1"},
		{"no such image", waiting("ErrImagePull", "manifest unknown: not found"), 0, failed, is[*cloud.InvalidError], "img:1"},
		{"an image that may not be pulled", waiting("ImagePullBackOff", "401 Unauthorized"), 0, failed, is[*cloud.InvalidError], "Unauthorized"},
		{"an image for who logs in", waiting("ErrImagePull", "pull access denied, repository does not exist or may require authorization"), 0, failed, is[*cloud.InvalidError], "as Docker Hub refuses who does not log in; set SKYPILOT_DOCKER_USERNAME"},
		{"a login that the registry refuses", pulling("ErrImagePull", "authorization failed", "web-skypilot-registry"), 0, failed, is[*cloud.InvalidError], "refuses the task's login"},
		{"a secret that the registry refuses", pulling("ErrImagePull", "authorization failed", "mine"), 0, failed, is[*cloud.InvalidError], "refuses the login of mine (imagePullSecrets)"},
		{"too many pulls", waiting("ErrImagePull", "toomanyrequests: You have reached your unauthenticated pull rate limit. denied"), time.Second, starting, none, "toomanyrequests"},
		{"too many pulls for long", waiting("ErrImagePull", "toomanyrequests: You have reached"), time.Hour, failed, is[*cloud.UnreachableError], "allows no more pulls"},
		{"an image for other machines", waiting("ErrImagePull", "no match for platform in manifest"), 0, failed, is[*cloud.InvalidError], "platform"},
		{"an image's name that is none", waiting("InvalidImageName", "couldn't parse"), 0, failed, is[*cloud.InvalidError], "parse"},
		{"a machine that is busy with an image", waiting("CreateContainerError", "context deadline exceeded"), time.Hour, starting, none, "to be made on n1 (context deadline exceeded)"},
		{"a container that cannot be made", waiting("CreateContainerError", "no command specified"), 0, failed, is[*cloud.InvalidError], "no command"},
		{"a secret that is missing", waiting("CreateContainerConfigError", `secret "x" not found`), 0, failed, is[*cloud.InvalidError], `secret "x"`},
		{"no shell", waiting("RunContainerError", `exec: "/bin/sh": stat /bin/sh: no such file or directory`), 0, failed, is[*cloud.InvalidError], "no shell"},
		{"running", `{"status":{"phase":"Running","containerStatuses":[{"name":"ray-node","state":{"running":{}}}]}}`, 0, running, none, ""},
		{"a sidecar that is not up yet", `{"spec":{"nodeName":"n1"},"status":{"phase":"Running","containerStatuses":[{"name":"ray-node","state":{"running":{}}},{"name":"s","state":{"waiting":{"reason":"ContainerCreating"}}}]}}`, 0, starting, none, "start"},
		{"evicted", over("Failed", "Evicted", "The node was low on resource: memory.", ""), 0, failed, is[*cloud.CapacityError], "low on resource"},
		{"sent away by its machine", over("Failed", "OutOfcpu", "Node didn't have enough resource", ""), 0, failed, is[*cloud.CapacityError], "OutOfcpu"},
		{"out of memory", over("Failed", "", "", `{"name":"ray-node","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}`), 0, failed, is[*cloud.InvalidError], "memory"},
		{"without a shell from the start", over("Failed", "", "", `{"name":"ray-node","state":{"terminated":{"exitCode":128,"reason":"StartError","message":"exec: \"/bin/sh\": stat /bin/sh: no such file or directory"}}}`), 0, failed, is[*cloud.InvalidError], "no shell"},
		{"deleted", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Pending"}}`, 0, failed, is[*cloud.CapacityError], "deleted"},
		{"deleted while others start", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}],"containerStatuses":[{"name":"ray-node","state":{"running":{}}}]}}`, 0, failed, is[*cloud.CapacityError], "higher priority"},
		{"a word nobody knows", `{"status":{"phase":"quantum"}}`, 0, failed, func(err error) bool { return err != nil && !translated(err) }, "quantum"},
	} {
		j := judge(podOf(t, tt.pod), here, tt.since)
		if j.stage != tt.stage || !tt.is(j.err) || !strings.Contains(j.doing+fmt.Sprint(j.err), tt.says) {
			t.Errorf("%s: %+v", tt.name, j)
		}
	}
}

func none(err error) bool { return err == nil }

func TestObituaries(t *testing.T) {
	for _, tt := range []struct{ pod, says string }{
		{over("Failed", "Evicted", "low on disk", ""), "Evicted: low on disk"},
		{over("Failed", "", "", `{"name":"ray-node","state":{"terminated":{"exitCode":77}}}`), "gave itself back"},
		{over("Failed", "", "", `{"name":"ray-node","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}`), "OOMKilled"},
		{over("Failed", "", "", `{"name":"ray-node","state":{"terminated":{"exitCode":3,"reason":"Error"}}}`), "ended with code 3"},
		{`{"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler","message":"preempted for x"}]}}`, "higher priority: preempted for x"},
		{`{"status":{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByTaintManager"}]}}`, "does not answer"},
		{over("Succeeded", "", "", ""), "first process ended"},
	} {
		if got := obituary(podOf(t, tt.pod)); !strings.Contains(got, tt.says) {
			t.Errorf("%q, want %q", got, tt.says)
		}
	}
}

func TestStatesOfPods(t *testing.T) {
	for _, tt := range []struct {
		pod   string
		state cloud.NodeState
	}{
		{`{"status":{"phase":"Pending"}}`, cloud.NodePending},
		{`{"status":{"phase":"Running"}}`, cloud.NodeRunning},
		{`{"status":{"phase":"Unknown"}}`, cloud.NodeRunning},
		{`{"status":{"phase":"Failed","reason":"Evicted"}}`, cloud.NodeGone},
		{`{"status":{"phase":"Succeeded"}}`, cloud.NodeGone},
		// What is to be deleted runs until its machine says that it ended.
		{`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}`, cloud.NodeRunning},
	} {
		n, err := podOf(t, tt.pod).node(here)
		if err != nil || n.State != tt.state || n.State == cloud.NodeGone && n.Reason == "" {
			t.Errorf("%s: %+v, %v", tt.pod, n, err)
		}
	}
}

func nodeOf(name string, labels map[string]string, capacity map[string]string) node {
	n := node{}
	n.Metadata.Name, n.Metadata.Labels = name, labels
	n.Status.Capacity, n.Status.Allocatable = capacity, capacity
	n.Status.Conditions = conditions{{Type: "Ready", Status: "True"}}
	return n
}

func TestLabelsOfAccelerators(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{skyKey, "h100", "H100"}, {skyKey, "H100", ""},
		{gkeKey, "nvidia-tesla-t4", "T4"}, {gkeKey, "nvidia-h100-80gb", "H100"}, {gkeKey, "nvidia-h200-141gb", "H200"}, {gkeKey, "nvidia-l4", "L4"},
		{gkeTPUKey, "tpu-v5-lite-podslice", "tpu-v5-lite-podslice"},
		{karpenterKey, "a10g", "A10G"},
		{nvidiaName, "NVIDIA-A100-SXM4-80GB", "A100-80GB"}, {nvidiaName, "NVIDIA-H100-80GB-HBM3", "H100"}, {nvidiaName, "Tesla-T4", "T4"},
		{nvidiaName, "NVIDIA-A100-SXM4-40GB", "A100"}, {nvidiaName, "NVIDIA-L40S", "L40S"}, {nvidiaName, "NVIDIA-GeForce-RTX-3090", "RTX3090"},
		{coreweaveKey, "H100_NVLINK_80GB", "H100"}, {coreweaveKey, "A40", "A40"},
		{nebiusKey, "H200", "H200"}, {nebiusKey, "h200", ""},
	} {
		inv := &inventory{}
		inv.take([]node{nodeOf("n", map[string]string{tt.key: tt.value}, nil)}, nil)
		if got := inv.nodes[0].accelerator; got != tt.want {
			t.Errorf("%s=%s: %q, want %q", tt.key, tt.value, got, tt.want)
		}
	}
	for _, name := range []string{"A100", "A100-80GB", "H100", "H200", "T4", "L4", "V100", "B200"} {
		if got := fromGKE(toGKE(name)); got != name {
			t.Errorf("%s is %s on GKE, and that is %s", name, toGKE(name), got)
		}
	}
	for _, tt := range []struct {
		asked, have string
		want        bool
	}{
		{"A100", "a100", true}, {"A100", "A100-80GB", true}, {"A100-80GB", "A100", false}, {"H100", "H100-MEGA", true},
		{"L4", "L40", false}, {"T4", "H100", false}, {"V100-32GB", "V100", false},
	} {
		if got := sameAccelerator(tt.asked, tt.have); got != tt.want {
			t.Errorf("%s for %s: %t", tt.have, tt.asked, got)
		}
	}
}

func TestWhyNothingFits(t *testing.T) {
	gpu := map[string]string{skyKey: "h100"}
	inv := &inventory{context: "here"}
	down := nodeOf("down", gpu, map[string]string{"cpu": "96", "memory": "1Ti", nvidiaKey: "16"})
	down.Status.Conditions[0].Status = "Unknown"
	var pods []pod
	if err := json.Unmarshal([]byte(`[{"spec":{"nodeName":"g2","containers":[{"resources":{"requests":{"cpu":"30","memory":"8Gi","nvidia.com/gpu":"6"}}}]},"status":{"phase":"Running"}},
		{"spec":{"nodeName":"g2","containers":[{"resources":{"requests":{"nvidia.com/gpu":"2"}}}]},"status":{"phase":"Succeeded"}}]`), &pods); err != nil {
		t.Fatal(err)
	}
	inv.take([]node{
		nodeOf("c1", nil, map[string]string{"cpu": "4", "memory": "16Gi"}),
		nodeOf("g1", gpu, map[string]string{"cpu": "32", "memory": "128Gi", nvidiaKey: "4"}),
		nodeOf("g2", gpu, map[string]string{"cpu": "32", "memory": "128Gi", nvidiaKey: "8"}),
		down,
	}, pods)
	for _, tt := range []struct {
		size string
		says string // "": it fits
	}{
		{"4CPU--8GB", ""}, {"8CPU--32GB--H100:8", ""},
		{"64CPU--8GB", "the nearest, g1, has H100:4, 32 CPUs"},
		{"8CPU--32GB--H100:16", "the nearest, g2, has H100:8"},
		{"8CPU--32GB--A100:1", "no ready node has A100; there are H100:8"},
		{"1CPU--900GB", "the nearest, g1, has"},
	} {
		want, err := parseSize(tt.size)
		if err != nil {
			t.Fatal(err)
		}
		ok, why := inv.fit(want, choice{})
		if ok != (tt.says == "") || !strings.Contains(why, tt.says) {
			t.Errorf("%s: %t, %q", tt.size, ok, why)
		}
	}
	want, _ := parseSize("8CPU--32GB--H100:4")
	if why := inv.full(want, choice{}, 2); !strings.Contains(why, "2 pods") || !strings.Contains(why, "room for 1") {
		t.Error(why)
	}
	want.accelerators = 8
	if why := inv.full(want, choice{}, 1); !strings.Contains(why, "the nearest, g1, has H100:4") {
		t.Error(why)
	}
	if ok, why := inv.fit(podSize{cpus: 1}, choice{allowedNodes: allowedNodes{Names: []string{"down"}}}); ok || !strings.Contains(why, "3: allowed_nodes leaves it out; 1: it is not ready") {
		t.Errorf("%t %q", ok, why)
	}
	free := inv.gpus(GPUFilter{})
	if want := []GPUs{{"H100", []float64{1, 2, 4, 8, 16}, 28, 6}}; !reflect.DeepEqual(free, want) {
		t.Errorf("%+v, want %+v", free, want)
	}
}

func TestSizesOfPods(t *testing.T) {
	amount := func(s string) catalog.Amount { a, _ := catalog.ParseAmount(s); return a }
	for _, tt := range []struct {
		q    catalog.Query
		want string
	}{
		{catalog.Query{}, "2CPU--2GB"},
		{catalog.Query{CPUs: amount("4")}, "4CPU--4GB"},
		{catalog.Query{CPUs: amount("0.5+"), Memory: amount("3x")}, "0.5CPU--1.5GB"},
		{catalog.Query{Accelerator: "H100", Count: 2}, "8CPU--32GB--H100:2"},
		{catalog.Query{Accelerator: "H100", Count: 0.5, Memory: amount("10")}, "4CPU--10GB--H100:1"},
		{catalog.Query{Accelerator: "tpu-v6e-8", Count: 1}, "32CPU--128GB--tpu-v6e-slice:8"},
	} {
		s, err := wanted(tt.q)
		if err != nil || s.name() != tt.want {
			t.Errorf("%+v: %s, want %s (%v)", tt.q, s.name(), tt.want, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := podSize{cpus: float64(rapid.IntRange(1, 2000).Draw(t, "milli")) / 10, memoryGB: float64(rapid.IntRange(1, 9999).Draw(t, "mem")) / 10}
		if rapid.Bool().Draw(t, "gpu") {
			s.accelerator, s.accelerators = rapid.SampledFrom([]string{"H100", "A100-80GB", "RTX6000-Ada"}).Draw(t, "name"), float64(rapid.IntRange(1, 16).Draw(t, "n"))
		}
		again, err := parseSize(s.name())
		if err != nil || again != s {
			t.Fatalf("%v is written %s and read %v, %v", s, s.name(), again, err)
		}
	})
}

func TestAWholeNodeIsLessThanItSays(t *testing.T) {
	n := nodeOf("n", nil, map[string]string{"cpu": "16", "memory": "64Gi"})
	n.Status.Allocatable = map[string]string{"cpu": "15800m", "memory": "62Gi"}
	inv := &inventory{}
	inv.take([]node{n}, nil)
	if got := inv.clamp(podSize{cpus: 16, memoryGB: 8}, choice{}); got.cpus != 14.2 || got.memoryGB != 8 {
		t.Error(got)
	}
	if got := inv.clamp(podSize{cpus: 8, memoryGB: 64}, choice{}); got.cpus != 8 || got.memoryGB >= 62 {
		t.Error(got)
	}
	if got := inv.clamp(podSize{cpus: 32, memoryGB: 8}, choice{}); got.cpus != 32 {
		t.Error(got)
	}
}

func TestPodConfigIsMergedByTheRules(t *testing.T) {
	base := obj{"spec": obj{"containers": []any{obj{"name": mainContainer, "image": "a", "command": []any{"x"}, "env": []any{obj{"name": "A", "value": "1"}}}},
		"tolerations": []any{obj{"key": "t1"}}, "volumes": []any{obj{"name": "v", "emptyDir": obj{}}}, "imagePullSecrets": []any{obj{"name": "s0"}}}}
	over := obj{"spec": obj{"containers": []any{obj{"image": "b", "command": []any{"y", "z"}, "env": []any{obj{"name": "A", "value": "2"}, obj{"name": "B", "value": "3"}}}, obj{"name": "side"}},
		"tolerations": []any{obj{"key": "t2"}}, "volumes": []any{obj{"name": "v", "emptyDir": obj{"medium": "Memory"}}, obj{"name": "w"}},
		"imagePullSecrets": []any{obj{"name": "s1"}}, "hostNetwork": true}}
	want := obj{"spec": obj{"containers": []any{obj{"name": mainContainer, "image": "b", "command": []any{"y", "z"}, "env": []any{obj{"name": "A", "value": "2"}, obj{"name": "B", "value": "3"}}}, obj{"name": "side"}},
		"tolerations": []any{obj{"key": "t1"}, obj{"key": "t2"}}, "volumes": []any{obj{"name": "v", "emptyDir": obj{"medium": "Memory"}}, obj{"name": "w"}},
		"imagePullSecrets": []any{obj{"name": "s1"}}, "hostNetwork": true}}
	before := jsonOf(base)
	if got := merge(base, over); !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nwant %s", jsonOf(got), jsonOf(want))
	}
	if jsonOf(base) != before {
		t.Error("what it was laid over was changed")
	}
}

func TestPodsAreDescribed(t *testing.T) {
	conf, err := newSettings(map[string]any{
		"set_pod_resource_limits": 2, "remote_identity": "trainer", "kueue": map[string]any{"local_queue_name": "q"},
		"allowed_nodes":   map[string]any{"names": []any{"n1"}},
		"custom_metadata": map[string]any{"annotations": map[string]any{"team": "ml"}, "labels": map[string]any{cloud.TagHash: "hijack"}},
		"pod_config":      map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"imagePullPolicy": "Never"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := podRequest{conf: conf, size: podSize{4, 16, "H100", 2}, devices: placement{resource: nvidiaKey, label: skyKey, values: []string{"h100"}}, runtime: "nvidia",
		spec: cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 2, User: "Ann Müller", DisplayName: "Web", MachineSpec: cloud.MachineSpec{EphemeralGB: 7, PriorityClass: "high"}, ImageID: "docker:img"}}
	text := jsonOf(w.describe(1, podName(w.spec.ID, 1, false)))
	for _, part := range []string{
		`"name":"web-worker1"`, `"skypilot-user":"Ann-M-ller"`, `"sky-cluster-hash":"h"`, `"team":"ml"`, `"imagePullPolicy":"Never"`, `"image":"img"`,
		`"cpu":"8"`, `"memory":"32G"`, `"nvidia.com/gpu":"2"`, `"ephemeral-storage":"7G"`, `"serviceAccountName":"trainer"`, `"runtimeClassName":"nvidia"`,
		`"kueue.x-k8s.io/queue-name":"q"`, `"kueue.x-k8s.io/pod-group-total-count":"2"`, `"key":"skypilot.co/accelerator","operator":"In","values":["h100"]`, `"values":["n1"]`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in %s", part, text)
		}
	}
	w.conf.PodConfig = map[string]any{"spec": map[string]any{"runtimeClassName": ""}}
	if text := jsonOf(w.describe(0, "web-head")); strings.Contains(text, "runtimeClassName") {
		t.Errorf("a runtime class that the user does not want: %s", text)
	}
	if strings.Contains(text, "priorityClassName") {
		t.Error("the queue decides about priorities")
	}
}

func TestAPodIsHeldUpForHooks(t *testing.T) {
	describe := func(d time.Duration) string {
		w := podRequest{size: podSize{cpus: 1, memoryGB: 1}, spec: cloud.LaunchSpec{Nodes: 1, EndGrace: d}}
		return jsonOf(w.describe(0, "web-head"))
	}
	for _, tt := range []struct {
		grace time.Duration
		want  string
	}{{90 * time.Second, `"terminationGracePeriodSeconds":100`}, {2 * time.Hour, `"terminationGracePeriodSeconds":610`}} {
		if text := describe(tt.grace); !strings.Contains(text, tt.want) || !strings.Contains(text, `"preStop"`) {
			t.Errorf("%s is missing in %s", tt.want, text)
		}
	}
	if text := describe(0); strings.Contains(text, "preStop") || strings.Contains(text, "terminationGracePeriodSeconds") {
		t.Errorf("without hooks: %s", text)
	}
}

func TestHowLongPodsMayWait(t *testing.T) {
	for _, tt := range []struct {
		section map[string]any
		nodes   int
		want    time.Duration // for a node
	}{
		{nil, 1, 10 * time.Second}, {nil, 6, 11 * time.Second}, {nil, 1000, time.Minute},
		{map[string]any{"provision_timeout": 5}, 9, 5 * time.Second}, {map[string]any{"provision_timeout": -1}, 9, 0},
		{map[string]any{"provision_timeout": 0}, 9, time.Second}, // not for ever
		{map[string]any{"autoscaler": "karpenter"}, 1, time.Minute},
		{map[string]any{"kueue": map[string]any{"local_queue_name": "q"}}, 1, 10 * time.Second},
		{map[string]any{"dws": map[string]any{"enabled": true}}, 3, 1220 * time.Second},
	} {
		s, err := newSettings(tt.section)
		if got := s.patience(tt.nodes, false).nodes; err != nil || got != tt.want {
			t.Errorf("%v, %d nodes: %v, want %v (%v)", tt.section, tt.nodes, got, tt.want, err)
		}
	}
	for _, tt := range []struct {
		kueue map[string]any
		want  time.Duration
	}{{nil, 24 * time.Hour}, {map[string]any{"admission_timeout": 90}, 90 * time.Second}, {map[string]any{"admission_timeout": -1}, 0}} {
		s, err := newSettings(map[string]any{"kueue": tt.kueue, "provision_timeout": 7})
		if got := s.patience(1, false); err != nil || got != (patience{queue: tt.want, nodes: 7 * time.Second}) {
			t.Errorf("%v: %+v, want %v (%v)", tt.kueue, got, tt.want, err)
		}
	}
}

// A call that goes on with pods of an earlier one, which a crash or a lost answer
// ended, does not begin to wait anew.
func TestWaitsGoOnWhereAnEarlierCallEnded(t *testing.T) {
	begun := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return begun.Add(-d) }
	for _, tt := range []struct {
		name            string
		c               census
		patience, grown time.Duration // for a node
		from, limit     time.Time
	}{
		{"a pod that was just made", census{unscheduled: 1, made: ago(time.Second)}, time.Hour, 0, begun, begun.Add(time.Hour)},
		{"one that has waited in its queue", census{queued: 1, made: ago(20 * time.Hour)}, time.Minute, time.Hour, ago(20 * time.Hour), begun.Add(4 * time.Hour)},
		{"one that has waited long enough", census{unscheduled: 1, made: ago(time.Hour)}, time.Minute, 0, ago(time.Hour), begun.Add(leastPatience)},
		{"the same with little patience", census{unscheduled: 1, made: ago(time.Hour)}, 2 * time.Second, 0, ago(time.Hour), begun.Add(2 * time.Second)},
		{"one for which a machine is added", census{unscheduled: 1, made: ago(5 * time.Minute)}, time.Minute, 15 * time.Minute, ago(5 * time.Minute), begun.Add(10 * time.Minute)},
		{"one that may wait for ever", census{unscheduled: 1, made: ago(time.Hour)}, 0, 0, ago(time.Hour), time.Time{}},
		{"a clock that goes ahead", census{unscheduled: 1, made: begun.Add(time.Hour)}, time.Hour, 0, begun, begun.Add(time.Hour)},
		{"images for some time", census{placed: ago(20 * time.Minute)}, time.Hour, 0, ago(20 * time.Minute), begun.Add(startPatience - 20*time.Minute)},
		{"images for too long", census{placed: ago(time.Hour)}, time.Hour, 0, ago(time.Hour), begun.Add(leastPatience)},
		{"nothing known", census{}, time.Hour, 0, begun, begun.Add(startPatience)},
	} {
		if from, limit := tt.c.window(begun, time.Time{}, begun, patience{queue: 24 * time.Hour, nodes: tt.patience}, tt.grown); !from.Equal(tt.from) || !limit.Equal(tt.limit) {
			t.Errorf("%s: from %v until %v, want %v and %v", tt.name, from, limit, tt.from, tt.limit)
		}
	}
	// With a queue, the time for a node begins when the queue lets the pods in.
	c := census{unscheduled: 2, made: ago(20 * time.Hour)}
	admitted := begun.Add(time.Hour)
	if from, limit := c.window(begun, admitted, admitted, patience{24 * time.Hour, 10 * time.Second}, 0); !from.Equal(admitted) || !limit.Equal(admitted.Add(10*time.Second)) {
		t.Errorf("after its queue: from %v until %v", from, limit)
	}
	c.queued = 1
	if _, limit := c.window(begun, admitted, admitted, patience{nodes: 10 * time.Second}, 0); !limit.IsZero() {
		t.Errorf("in a queue for ever: until %v", limit)
	}
}

// A pod that has waited too long is not waited for once more, as often as the
// launch is repeated.
func TestAPodThatHasNotStartedInTime(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	p := providerOver(t, f, nil)
	id := cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}
	began := time.Now().Add(-2 * startPatience).UTC().Format(time.RFC3339)
	f.put(podsPath, obj{"apiVersion": "v1", "kind": "Pod", "spec": obj{"nodeName": "node-1"},
		"metadata": obj{"name": podName(id, 0, false), "namespace": "team", "labels": texts(cloud.LaunchSpec{ID: id}.NodeTags(0)), "uid": "u1", "creationTimestamp": began},
		"status":   obj{"phase": "Pending", "conditions": []any{obj{"type": "PodScheduled", "status": "True", "lastTransitionTime": began}}}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // much less than startPatience
	defer cancel()
	_, err := p.Launch(ctx, cloud.LaunchSpec{ID: id, Nodes: 1, Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}})
	if !is[*cloud.UnreachableError](err) || !strings.Contains(err.Error(), "to start on node-1") {
		t.Errorf("%v", err)
	}
}

// An autoscaler's word counts for the pod that it is about.
func TestWhatAutoscalersSay(t *testing.T) {
	f := startFake(t)
	say := func(name, reason, pod, uid string) {
		f.put(eventsPath, obj{"metadata": obj{"name": name}, "reason": reason, "type": "Normal", "involvedObject": obj{"kind": "Pod", "name": pod, "uid": uid}})
	}
	say("a", "TriggeredScaleUp", "web-two-head", "u2")
	say("b", "TriggeredScaleUp", "web-head", "before")
	say("c", "Nominated", "web-head", "u1")
	have := map[string]*pod{"u1": {Metadata: metadata{Name: "web-head", UID: "u1"}}}
	for scaler, want := range map[string]bool{"gke": false, "karpenter": true, "generic": true} {
		w, err := providerOver(t, f, nil).at("here", map[string]any{"autoscaler": scaler})
		if err != nil {
			t.Fatal(err)
		}
		l := &launch{target: w}
		if got := l.grows(t.Context(), have); got != want || w.conf.growing() == 0 {
			t.Errorf("%s: %t, want %t", scaler, got, want)
		}
	}
}

// The engine must not cut off what the provider waits for on purpose.
func TestHowLongALaunchMayTake(t *testing.T) {
	f := startFake(t)
	p := providerOver(t, f, nil)
	for _, tt := range []struct {
		section map[string]any
		want    time.Duration
	}{
		{nil, startPatience + aroundWait + 10*time.Second},
		{map[string]any{"provision_timeout": -1}, cloud.Forever},
		{map[string]any{"autoscaler": "gke"}, startPatience + aroundWait + 15*time.Minute},
		{map[string]any{"kueue": map[string]any{"local_queue_name": "q"}}, startPatience + aroundWait + 24*time.Hour + 10*time.Second},
		{map[string]any{"kueue": map[string]any{"local_queue_name": "q", "admission_timeout": -1}}, cloud.Forever},
	} {
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1,
			Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Settings: tt.section}
		if got := p.LaunchLimit(spec); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.section, got, tt.want)
		}
	}
}

func TestWhatIsSaidOfAPodThatDoesNotStart(t *testing.T) {
	at := func(s int) metav1.Time { return metav1.Unix(int64(s), 0) }
	events := []event{
		{Type: "Warning", Reason: "FailedScheduling", Message: "0/1 nodes", Last: at(9)},
		{Type: "Warning", Reason: "FailedMount", Message: "MountVolume.SetUp failed\n", Last: at(5)},
		{Type: "Warning", Reason: "FailedAttachVolume", Message: "in use", Last: at(4)},
		{Type: "Normal", Reason: "Pulling", Last: at(3)},
	}
	if e := complaint(events); e == nil || e.String() != "FailedMount: MountVolume.SetUp failed" {
		t.Errorf("%v", e)
	}
	events = append(events, event{Type: "Normal", Reason: "Pulling", Message: `Pulling image "img"`, Last: at(10)})
	if e := complaint(events); e == nil || e.Message != `Pulling image "img"` {
		t.Errorf("%+v", e)
	}
	events = append(events, event{Type: "Normal", Reason: "Pulled", Last: at(11)})
	if e := complaint(events); e != nil {
		t.Errorf("what is done is no complaint: %v", e)
	}
	if e := complaint(events[:1]); e != nil {
		t.Errorf("%v", e)
	}
}

func TestErrorsOfTheAPIServer(t *testing.T) {
	f := startFake(t)
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1,
		Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Settings: quick("")}
	for _, tt := range []struct {
		name    string
		code    int
		message string
		is      func(error) bool
	}{
		{"a quota", 403, `pods "web-head" is forbidden: exceeded quota: q, requested: cpu=1`, is[*cloud.QuotaError]},
		{"a webhook", 403, `admission webhook "policy.io" denied the request: images must be signed`, is[*cloud.InvalidError]},
		{"pod security", 403, `pods "web-head" is forbidden: violates PodSecurity "restricted:latest"`, is[*cloud.InvalidError]},
		{"no right", 403, `pods is forbidden: User "ann" cannot create resource "pods"`, is[*cloud.PermissionError]},
		{"no such account", 403, `pods "web-head" is forbidden: error looking up service account team/x: serviceaccount "x" not found`, is[*cloud.InvalidError]},
		{"no such priority", 403, `pods "web-head" is forbidden: no PriorityClass with name x was found`, is[*cloud.InvalidError]},
		{"no such runtime", 403, `pods "web-head" is forbidden: pod rejected: RuntimeClass "x" not found`, is[*cloud.InvalidError]},
		{"a policy", 422, `pods "web-head" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`, is[*cloud.InvalidError]},
		{"a range of limits", 403, `pods "web-head" is forbidden: [minimum memory usage per Container is 1Gi, but request is 1G, maximum cpu usage per Container is 1, but limit is 2]`, is[*cloud.InvalidError]},
		{"a quota of limits", 403, `pods "web-head" is forbidden: failed quota: q: must specify limits.cpu for: ray-node`, is[*cloud.InvalidError]},
		{"a namespace that goes", 403, `pods "web-head" is forbidden: unable to create new content in namespace team because it is being terminated`, is[*cloud.InvalidError]},
		{"no right to one", 403, `pods "web-head" is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group "" in the namespace "team"`, is[*cloud.PermissionError]},
		{"a proxy before it", 403, `access denied`, is[*cloud.PermissionError]},
		{"a webhook that does not answer", 500, `Internal error occurred: failed calling webhook "policy.io": failed to call webhook: Post "https://policy.io/?timeout=10s": context deadline exceeded`, is[*cloud.UnreachableError]},
		{"nonsense", 422, `Pod "web-head" is invalid: spec.containers[0].image: Required value`, is[*cloud.InvalidError]},
	} {
		f.mu.Lock()
		f.refuse = func(obj) (int, string) { return tt.code, tt.message }
		f.mu.Unlock()
		_, err := p.Launch(t.Context(), spec)
		if !tt.is(err) || !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%s: %T: %v", tt.name, err, err)
		}
	}
}

func TestAnAPIServerThatRestartsIsWaitedFor(t *testing.T) {
	f := startFake(t)
	f.boot = time.Hour // until it is told
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 2,
		Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}, Settings: map[string]any{"provision_timeout": -1}}
	done := make(chan error, 1)
	go func() { _, err := p.Launch(t.Context(), spec); done <- err }()
	for len(f.inventory()) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	var once error
	f.hook.troublesFor(func() {
		f.mu.Lock()
		f.boot = 0
		f.mu.Unlock()
		f.more(-1)
	})
	if once = <-done; once != nil {
		t.Error(once)
	}
}

func TestAGangOfWhichOneIsLost(t *testing.T) {
	f := startFake(t)
	f.onBoot = func(o obj) {
		if strings.HasSuffix(asObj(o["metadata"])["name"].(string), "worker1") {
			o["status"] = obj{"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
		}
	}
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 3,
		Offer: cloud.Offer{Place: here, InstanceType: "1CPU--1GB"}}
	_, err := p.Launch(t.Context(), spec)
	var full *cloud.CapacityError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "low on resource") || full.Place != here {
		t.Errorf("%T: %v", err, err)
	}
	f.mu.Lock()
	f.onBoot = nil
	f.mu.Unlock()
	if nodes, err := p.Launch(t.Context(), spec); err != nil || len(nodes) != 3 {
		t.Errorf("afterwards: %v, %v", nodes, err)
	}
}

func TestAccelerators(t *testing.T) {
	f := startFake(t)
	f.addNode("gpu-1", map[string]string{skyKey: "h100"}, map[string]string{"cpu": "64", "memory": "512Gi", nvidiaKey: "8"})
	f.put("/apis/node.k8s.io/v1/runtimeclasses", obj{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": obj{"name": "nvidia"}})
	p := New(Options{Contexts: contexts(t, map[string]string{"here": f.server.URL}, "here"), Dir: t.TempDir()})
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 1,
		Offer: cloud.Offer{Place: here, InstanceType: "8CPU--32GB--H100:2"}}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	text := jsonOf(f.objects["/api/v1/namespaces/team/pods"]["web-head"])
	f.mu.Unlock()
	for _, part := range []string{`"runtimeClassName":"nvidia"`, `"nvidia.com/gpu":"2"`, `"values":["h100"]`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in %s", part, text)
		}
	}
	tailored, err := p.Tailored(t.Context(), quick)
	if err != nil {
		t.Fatal(err)
	}
	if o := tailored.Find(catalog.Query{Accelerator: "h100", Count: 8}); len(o) != 1 || o[0].InstanceType != "32CPU--128GB--H100:8" {
		t.Errorf("%+v", o)
	}
	if why := tailored.WhyNot(catalog.Query{Accelerator: "A100", Count: 1}); !strings.Contains(why, "here: no ready node has A100; there are H100:8") {
		t.Error(why)
	}
	all, err := p.Available(t.Context(), quick, GPUFilter{})
	if err != nil || len(all) != 1 || len(all[0].GPUs) != 1 || all[0].GPUs[0].Available != 6 {
		t.Errorf("%+v, %v", all, err)
	}
}

func BenchmarkGPUsOf500Nodes(b *testing.B) {
	f := startFake(b)
	for i := range 500 {
		f.addNode(fmt.Sprintf("gpu-%d", i), map[string]string{skyKey: "h100"}, map[string]string{"cpu": "64", "memory": "512Gi", nvidiaKey: "8"})
	}
	all := contexts(b, map[string]string{"here": f.server.URL}, "here")
	for b.Loop() {
		p := New(Options{Contexts: all}) // it has seen nothing yet
		if all, err := p.Available(b.Context(), quick, GPUFilter{}); err != nil || all[0].GPUs[0].Available != 4000 {
			b.Fatal(all, err)
		}
	}
}
