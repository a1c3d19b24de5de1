package kubernetes

import (
	"strings"
	"time"
)

// The fake's storage: claims get volumes a moment after they were made, or when a
// pod wants them, and stay while pods hold them.

const (
	claimsPath  = "/api/v1/namespaces/team/persistentvolumeclaims"
	podsPath    = "/api/v1/namespaces/team/pods"
	eventsPath  = "/api/v1/namespaces/team/events"
	classesPath = "/apis/storage.k8s.io/v1/storageclasses"
	volumesPath = "/api/v1/persistentvolumes"
)

// addClass adds a storage class. What waits is bound when a pod mounts it; a
// class with a fault makes nothing and says why.
func (f *fake) addClass(name string, byDefault, waits bool, fault string) {
	binding := "Immediate"
	if waits {
		binding = "WaitForFirstConsumer"
	}
	annotations := obj{}
	if byDefault {
		annotations["storageclass.kubernetes.io/is-default-class"] = "true"
	}
	f.put(classesPath, obj{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": obj{"name": name, "annotations": annotations},
		"provisioner": "fake", "volumeBindingMode": binding, "parameters": obj{"fault": fault}})
}

// newClaim is what the API server makes of a claim. The lock is held.
func (f *fake) newClaim(o obj) {
	spec := asObj(o["spec"])
	if spec["storageClassName"] == nil {
		for name, c := range f.objects[classesPath] {
			if len(asObj(asObj(c["metadata"])["annotations"])) > 0 {
				spec["storageClassName"] = name
			}
		}
	}
	o["status"] = obj{"phase": "Pending"}
	asObj(o["metadata"])["finalizers"] = []any{"kubernetes.io/pvc-protection"}
}

// provision gives a claim a volume a moment later, as its class says.
func (f *fake) provision(name string, consumer bool) {
	time.AfterFunc(f.boot, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.bind(name, consumer)
	})
}

func (f *fake) bind(name string, consumer bool) {
	o := f.objects[claimsPath][name]
	if o == nil || asObj(o["status"])["phase"] != "Pending" {
		return
	}
	class := f.objects[classesPath][text(asObj(o["spec"])["storageClassName"])]
	fault := text(asObj(class["parameters"])["fault"])
	waits := class["volumeBindingMode"] == "WaitForFirstConsumer" && !consumer
	uid := asObj(o["metadata"])["uid"]
	if class == nil || fault != "" || waits {
		kind, reason, message := "Warning", "ProvisioningFailed", fault
		if waits {
			kind, reason, message = "Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
		}
		f.store(eventsPath, obj{"apiVersion": "v1", "kind": "Event", "metadata": obj{"name": name + "." + strings.ToLower(reason)}, "type": kind, "reason": reason, "message": message,
			"involvedObject": obj{"kind": "PersistentVolumeClaim", "name": name, "uid": uid}, "lastTimestamp": time.Now().UTC().Format(time.RFC3339)})
		return
	}
	o = copyOf(o)
	spec := asObj(o["spec"])
	spec["volumeName"] = "pv-" + name
	o["status"] = obj{"phase": "Bound", "capacity": asObj(asObj(spec["resources"])["requests"])}
	f.store(volumesPath, obj{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": obj{"name": "pv-" + name}, "spec": obj{"nodeAffinity": obj{"required": obj{
		"nodeSelectorTerms": []any{obj{"matchExpressions": []any{obj{"key": "kubernetes.io/hostname", "operator": "In", "values": []any{"node-1"}}}}}}}}})
	f.store(claimsPath, o)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// claimsOf are what a pod mounts.
func claimsOf(pod obj) (names []string) {
	for _, v := range asList(asObj(pod["spec"])["volumes"]) {
		if name := text(asObj(asObj(v)["persistentVolumeClaim"])["claimName"]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// lacksVolumes reports whether a pod must wait for its claims, which it makes those
// bind that wait for one. The lock is held.
func (f *fake) lacksVolumes(pod obj) (message string) {
	for _, name := range claimsOf(pod) {
		f.bind(name, true)
		c := f.objects[claimsPath][name]
		switch {
		case c == nil:
			message = `persistentvolumeclaim "` + name + `" not found`
		case asObj(c["metadata"])["deletionTimestamp"] != nil:
			message = `persistentvolumeclaim "` + name + `" is being deleted`
		case asObj(c["status"])["phase"] != "Bound":
			message = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
		}
	}
	return message
}

// held reports whether a pod on a machine, also one that has ended, has the claim.
// The lock is held.
func (f *fake) held(claim string) bool {
	for _, p := range f.objects[podsPath] {
		if asObj(p["spec"])["nodeName"] == nil {
			continue
		}
		for _, name := range claimsOf(p) {
			if name == claim {
				return true
			}
		}
	}
	return false
}

// removeClaim deletes a claim, or marks it while a pod holds it. The lock is held.
func (f *fake) removeClaim(name string) {
	o := f.objects[claimsPath][name]
	if asObj(o["metadata"])["deletionTimestamp"] == nil {
		o = copyOf(o)
		asObj(o["metadata"])["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.store(claimsPath, o)
	}
	time.AfterFunc(time.Millisecond, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.letGo()
	})
}

// letGo removes marked claims that nothing holds any more. The lock is held.
func (f *fake) letGo() {
	for name, o := range f.objects[claimsPath] {
		if asObj(o["metadata"])["deletionTimestamp"] != nil && !f.held(name) {
			f.drop(claimsPath, name)
			f.drop(volumesPath, "pv-"+name)
			for event, e := range f.objects[eventsPath] {
				if asObj(e["involvedObject"])["uid"] == asObj(o["metadata"])["uid"] {
					f.drop(eventsPath, event)
				}
			}
		}
	}
}

// clean is the end of a pod that empties a folder: well, unless the folder's name
// says otherwise. The lock is held.
func (f *fake) clean(o obj) {
	folder := text(asObj(asObj(asList(asObj(o["spec"])["volumes"])[0])["hostPath"])["path"])
	if strings.Contains(folder, "busy") {
		o["status"] = obj{"phase": "Failed", "containerStatuses": []any{obj{"name": "clean", "state": obj{"terminated": obj{"exitCode": 1, "message": "find: /volume/x: Resource busy"}}}}}
	} else {
		f.cleaned = append(f.cleaned, text(asObj(o["spec"])["nodeName"])+" "+folder)
		o["status"] = obj{"phase": "Succeeded"}
	}
	f.store(podsPath, o)
}
