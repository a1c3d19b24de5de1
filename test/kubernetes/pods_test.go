//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
)

type obj = map[string]any

// patched is onReal with the namespace and more over the pod's specification.
func patched(namespace string, spec obj) obj {
	s := onReal()
	s["namespace"] = namespace
	maps.Copy(s["pod_config"].(obj)["spec"].(obj), spec)
	return s
}

// newNamespace is one for this test alone.
func newNamespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("n%x", time.Now().UnixNano())
	mustAsk(t, "POST", "/api/v1/namespaces", obj{"apiVersion": "v1", "kind": "Namespace", "metadata": obj{"name": name}})
	t.Cleanup(func() { ask("DELETE", "/api/v1/namespaces/"+name, nil) })
	eventually(t, "the namespace's account", func() bool {
		_, code, err := ask("GET", "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil)
		return err == nil && code == 200
	})
	return name
}

// made makes an object of the whole cluster for this test.
func made(t *testing.T, collection string, o obj) {
	t.Helper()
	mustAsk(t, "POST", collection, o)
	t.Cleanup(func() { ask("DELETE", collection+"/"+o["metadata"].(obj)["name"].(string), nil) })
}

func in(o any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := o.(obj)
			o = m[p]
		case int:
			l, _ := o.([]any)
			if p >= len(l) {
				return nil
			}
			o = l[p]
		}
	}
	return o
}

// What settings and tasks ask of a pod is what the API server accepts and the
// machine runs; a volume outlives the pods.
func TestAPodIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	ctx, ns := t.Context(), newNamespace(t)
	dir := t.TempDir()
	p := provider(t, dir)
	made(t, "/apis/node.k8s.io/v1/runtimeclasses", obj{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": obj{"name": ns + "-plain"}, "handler": "runc"})
	made(t, "/apis/scheduling.k8s.io/v1/priorityclasses", obj{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": obj{"name": ns + "-urgent"}, "value": 1000})
	made(t, "/api/v1/persistentvolumes", obj{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": obj{"name": ns + "-disk"}, "spec": obj{
		"capacity": obj{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": obj{"path": t.TempDir()}, "claimRef": obj{"namespace": ns, "name": "disk"}}})
	mustAsk(t, "POST", "/api/v1/namespaces/"+ns+"/persistentvolumeclaims", obj{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": obj{"name": "disk"},
		"spec": obj{"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "", "volumeName": ns + "-disk", "resources": obj{"requests": obj{"storage": "1Gi"}}}})
	mustAsk(t, "POST", "/api/v1/namespaces/"+ns+"/serviceaccounts", obj{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": obj{"name": "worker"}})

	spec := small(cloud.ClusterID{Installation: "asked", Name: "full", Hash: "h1"}, 1)
	spec.EphemeralGB, spec.PriorityClass, spec.Labels = 1, ns+"-urgent", map[string]string{"team": "vision"}
	spec.Settings = patched(ns, obj{
		"runtimeClassName": ns + "-plain",
		"imagePullSecrets": []any{obj{"name": "registry"}},
		"containers": []any{obj{"imagePullPolicy": "IfNotPresent", "env": []any{obj{"name": "COLOUR", "value": "blue"}},
			"volumeMounts": []any{obj{"name": "disk", "mountPath": "/disk"}, obj{"name": "scratch", "mountPath": "/scratch"}}}},
		"volumes": []any{obj{"name": "disk", "persistentVolumeClaim": obj{"claimName": "disk"}}, obj{"name": "scratch", "emptyDir": obj{"sizeLimit": "100Mi"}}},
	})
	spec.Settings["remote_identity"] = "worker"
	spec.Settings["custom_metadata"] = obj{"annotations": obj{"owner": "ann"}, "labels": obj{"cost": "low"}}
	spec.Settings["set_pod_resource_limits"] = 2.0
	run := func(n cloud.Node, command string) string {
		t.Helper()
		res, err := kubernetes.NewContexts(dir).Exec(ctx, n.Reach.Host, []string{"/bin/sh", "-c", command}, nil)
		if err != nil || res.Code != 0 {
			t.Fatalf("%s: %v %+v", command, err, res)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	nodes, err := p.Launch(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	pod := mustAsk(t, "GET", "/api/v1/namespaces/"+ns+"/pods/full-head", nil)
	for _, tt := range []struct {
		want any
		path []any
	}{
		{"worker", []any{"spec", "serviceAccountName"}}, {ns + "-plain", []any{"spec", "runtimeClassName"}},
		{ns + "-urgent", []any{"spec", "priorityClassName"}}, {1000.0, []any{"spec", "priority"}},
		{"registry", []any{"spec", "imagePullSecrets", 0, "name"}}, {"vision", []any{"metadata", "labels", "team"}},
		{"ann", []any{"metadata", "annotations", "owner"}}, {"low", []any{"metadata", "labels", "cost"}},
		{"1G", []any{"spec", "containers", 0, "resources", "requests", "ephemeral-storage"}},
		{"20m", []any{"spec", "containers", 0, "resources", "limits", "cpu"}},
	} {
		if got := in(pod, tt.path...); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.path, got, tt.want)
		}
	}
	if got := run(nodes[0], `echo kept >/disk/note; echo gone >/scratch/note; echo "$COLOUR"`); got != "blue" {
		t.Errorf("in the pod: %q", got)
	}
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	spec.ID.Hash = "h2"
	if nodes, err = p.Launch(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if got := run(nodes[0], "cat /disk/note; ls /scratch"); got != "kept" {
		t.Errorf("in the next pod: %q", got)
	}
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	if claims := names(t, "/api/v1/namespaces/"+ns+"/persistentvolumeclaims"); !slices.Equal(claims, []string{"disk"}) {
		t.Errorf("volumes after the cluster: %v", claims)
	}
}

// What a cluster's rules refuse is the request's fault, and says whose rule.
func TestRulesOfTheCluster(t *testing.T) {
	t.Parallel()
	ctx, ns := t.Context(), newNamespace(t)
	p := provider(t, t.TempDir())
	policies := "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	made(t, policies, obj{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": obj{"name": ns}, "spec": obj{
		"matchConstraints": obj{"resourceRules": []any{obj{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"}}},
			"namespaceSelector": obj{"matchLabels": obj{"kubernetes.io/metadata.name": ns}}},
		"validations": []any{obj{"expression": "has(object.metadata.labels) && 'cost-centre' in object.metadata.labels", "message": "pods need a cost-centre"}}}})
	made(t, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", obj{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": obj{"name": ns}, "spec": obj{"policyName": ns, "validationActions": []any{"Deny"}}})
	spec := small(cloud.ClusterID{Installation: "rules", Name: "rule", Hash: "h1"}, 1)
	refused := func(what string, settings obj, priority, want string) error {
		spec.Settings, spec.PriorityClass = settings, priority
		_, err := p.Launch(ctx, spec)
		var invalid *cloud.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a rule of the cluster refuses it") {
			return fmt.Errorf("%s: %T %v", what, err, err)
		}
		return nil
	}
	var last error
	eventually(t, "the policy to hold", func() bool {
		last = refused("a policy", patched(ns, nil), "", "pods need a cost-centre")
		if err := p.Terminate(ctx, spec.ID); err != nil {
			t.Fatal(err)
		}
		return last == nil
	})
	labelled := patched(ns, nil)
	labelled["custom_metadata"] = obj{"labels": obj{"cost-centre": "7"}}
	if _, err := func() ([]cloud.Node, error) { spec.Settings = labelled; return p.Launch(ctx, spec) }(); err != nil {
		t.Errorf("with the label: %v", err)
	}
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
	nobody := patched(newNamespace(t), nil)
	nobody["remote_identity"] = "nobody"
	for _, err := range []error{
		refused("an account", nobody, "", `"nobody" not found`),
		refused("a runtime", patched(nobody["namespace"].(string), obj{"runtimeClassName": "none-such"}), "", "none-such"),
		refused("a priority", patched(nobody["namespace"].(string), nil), "none-such", "none-such"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
}

// A pod that a queue holds back waits, says for what, and runs when it is let in.
// Kueue is played by this test.
func TestAQueueHoldsPodsBack(t *testing.T) {
	t.Parallel()
	ctx, ns := t.Context(), newNamespace(t)
	p := provider(t, t.TempDir())
	spec := small(cloud.ClusterID{Installation: "queue", Name: "held", Hash: "h1"}, 2)
	held := func(patience int) {
		spec.Settings = patched(ns, obj{"schedulingGates": []any{obj{"name": "kueue.x-k8s.io/admission"}}})
		spec.Settings["kueue"] = obj{"local_queue_name": "research", "admission_timeout": patience}
		spec.Settings["provision_timeout"] = 60
	}
	held(1)
	_, err := p.Launch(ctx, spec)
	var full *cloud.CapacityError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "to be admitted by its queue (research") {
		t.Errorf("a queue that is full: %T %v", err, err)
	}
	if left := names(t, "/api/v1/namespaces/"+ns+"/pods"); len(left) > 0 {
		t.Errorf("pods wait when nobody waits for them: %v", left)
	}
	held(-1)
	type outcome struct {
		nodes []cloud.Node
		err   error
	}
	done := make(chan outcome, 1)
	lctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	go func() {
		nodes, err := p.Launch(lctx, spec)
		done <- outcome{nodes, err}
	}()
	pods := "/api/v1/namespaces/" + ns + "/pods"
	eventually(t, "both pods to be held", func() bool { return len(names(t, pods)) == 2 })
	for _, name := range names(t, pods) {
		pod := mustAsk(t, "GET", pods+"/"+name, nil)
		if in(pod, "metadata", "labels", "kueue.x-k8s.io/queue-name") != "research" || in(pod, "metadata", "annotations", "kueue.x-k8s.io/pod-group-total-count") != "2" {
			t.Errorf("what Kueue reads of %s: %v", name, pod["metadata"])
		}
		mustAsk(t, "PATCH", pods+"/"+name, obj{"spec": obj{"schedulingGates": nil}})
	}
	if o := <-done; o.err != nil || len(o.nodes) != 2 {
		t.Errorf("when they were let in: %v %v", o.nodes, o.err)
	}
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
}

// When a cluster autoscaler has said that a machine comes, it is waited for
// longer than pods wait otherwise. The autoscaler is played by this test.
func TestAMachineThatAnAutoscalerAdds(t *testing.T) {
	t.Parallel()
	ctx, ns := t.Context(), newNamespace(t)
	mustScript(t, "fake", place, "1")
	p := provider(t, t.TempDir())
	spec := small(cloud.ClusterID{Installation: "grow", Name: "grow", Hash: "h1"}, 1)
	spec.Offer.InstanceType = "4CPU--16GB--A100:2"
	spec.Settings = obj{"namespace": ns, "autoscaler": "generic", "provision_timeout": 2}
	// Before it asks, so that it does not depend on who is quicker.
	mustAsk(t, "POST", "/api/v1/namespaces/"+ns+"/events", obj{"apiVersion": "v1", "kind": "Event", "metadata": obj{"name": "grows"}, "reason": "TriggeredScaleUp", "type": "Normal",
		"message": "pod triggered scale-up: [{pool 0->1 (max: 3)}]", "involvedObject": obj{"kind": "Pod", "namespace": ns, "name": "grow-head"}})
	done := make(chan error, 1)
	lctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	go func() {
		_, err := p.Launch(lctx, spec)
		done <- err
	}()
	pods := "/api/v1/namespaces/" + ns + "/pods"
	eventually(t, "the pod", func() bool { return len(names(t, pods)) == 1 })
	select {
	case err := <-done:
		t.Fatalf("it did not wait for the machine: %v", err)
	case <-time.After(4 * time.Second): // more than provision_timeout
	}
	has := obj{"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
	made(t, "/api/v1/nodes", obj{"apiVersion": "v1", "kind": "Node", "metadata": obj{"name": ns, "annotations": obj{"kwok.x-k8s.io/node": "fake"},
		"labels": obj{"kubernetes.io/hostname": ns, "skypilot.co/accelerator": "a100"}}, "status": obj{"capacity": has, "allocatable": has}})
	if err := <-done; err != nil {
		t.Errorf("with the new machine: %v", err)
	}
	if at := in(mustAsk(t, "GET", pods+"/grow-head", nil), "spec", "nodeName"); at != ns {
		t.Errorf("the pod went to %v", at)
	}
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
}

// A pod that is evicted, as when its machine is drained, is gone when its machine
// has said so.
func TestAPodThatIsEvicted(t *testing.T) {
	t.Parallel()
	ctx, ns := t.Context(), newNamespace(t)
	p := provider(t, t.TempDir())
	spec := small(cloud.ClusterID{Installation: "evict", Name: "drained", Hash: "h1"}, 1)
	spec.Settings = patched(ns, nil)
	if _, err := p.Launch(ctx, spec); err != nil {
		t.Fatal(err)
	}
	mustAsk(t, "POST", "/api/v1/namespaces/"+ns+"/pods/drained-head/eviction", obj{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": obj{"name": "drained-head"}})
	eventually(t, "the pod to be gone", func() bool {
		now, err := p.Nodes(ctx, spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range now {
			if n.State == cloud.NodeRunning && n.Reason != "" && !strings.Contains(n.Reason, "evicted") {
				t.Errorf("while it goes: %+v", n)
			}
		}
		return !slices.ContainsFunc(now, func(n cloud.Node) bool { return n.State != cloud.NodeGone })
	})
	if err := p.Terminate(ctx, spec.ID); err != nil {
		t.Fatal(err)
	}
}

// Without a place in the task pods are taken, as they cost nothing; with several
// contexts, the one that is named.
func TestPlacesAndPorts(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings+"  allowed_contexts: [real, kind-twin]\n")
	task := w.write("task.yaml", "resources:\n  cpus: 0.1\n  memory: 0.1\n  image_id: docker:localhost/shell:1\n  ports: 8080\nrun: echo somewhere\n")
	out := w.sky([]string{"somewhere", "SUCCEEDED", "Kubernetes"}, "launch", "-y", "-c", "free", task)
	if strings.Contains(out, "sky stop") {
		t.Errorf("pods cannot be stopped, yet that is proposed:\n%s", out)
	}
	w.sky([]string{"kind-twin"}, "launch", "-y", "-c", "there", "--infra", "k8s/kind-twin", task)
	if out := w.sky(nil, "status", "-r", "there", "-o", "json"); !strings.Contains(out, "kind-twin") {
		t.Errorf("where it is:\n%s", out)
	}
	w.sky([]string{"Context kind-twin answers", "sky launch --infra k8s/kind-twin"}, "local", "up", "--name", "twin")
	w.refused([]string{"Context kind-twin still has clusters of sky: there", "sky down there", "kind delete cluster --name twin"}, "local", "down", "--name", "twin")
	w.sky([]string{"Nothing of sky is on context kind-skypilot"}, "local", "down")
	w.refused([]string{`no Kubernetes context "kind-none"`, "kind create cluster --name none"}, "local", "up", "--name", "none")
	services := w.names("services")
	i := slices.IndexFunc(services, func(s string) bool { return strings.HasPrefix(s, "free-") })
	if i < 0 {
		t.Fatalf("no service for the ports: %v", services)
	}
	behind := "/apis/discovery.k8s.io/v1/namespaces/" + w.namespace + "/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D" + services[i]
	eventually(t, "the service to have the pod behind it", func() bool {
		list := mustAsk(t, "GET", behind, nil)
		return in(list, "items", 0, "endpoints", 0, "addresses", 0) != nil && in(list, "items", 0, "ports", 0, "port") == 8080.0
	})
	w.refused([]string{"cannot be reached yet", "load balancer"}, "status", "--endpoint", "8080", "free")
	mustAsk(t, "PATCH", w.path("services/"+services[i]+"/status"), obj{"status": obj{"loadBalancer": obj{"ingress": []any{obj{"ip": "192.0.2.7"}}}}})
	w.sky([]string{"192.0.2.7:8080"}, "status", "--endpoint", "8080", "free")
}

// A registry that does not answer is tried for a while, once.
func TestARegistryThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	at := strings.TrimSuffix(address, ".1") + ".254:1" // nobody listens there
	w.refused([]string{at + "/nothing:1", "does not answer machine real-1", "connection refused"}, "launch", "-y", "-c", "away", w.task("away.yaml", at+"/nothing:1", "run: echo hi\n"))
}
