//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Storage classes of the tests: one by default, one that makes its volumes when a
// pod wants them, and one that never makes any.
const (
	promptClass = "folders"
	lazyClass   = "folders-for-pods"
	brokenClass = "no-folders"
)

// provisioning gives the claims of a namespace volumes, as a storage provisioner
// of a real cluster does: folders of the real machine, which is this one.
func provisioning(t testing.TB, namespace string) {
	t.Helper()
	for name, binding := range map[string]string{promptClass: "Immediate", lazyClass: "WaitForFirstConsumer", brokenClass: "Immediate"} {
		class := obj{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": obj{"name": name}, "provisioner": "sky.test/" + name, "volumeBindingMode": binding}
		if name == promptClass {
			class["metadata"].(obj)["annotations"] = obj{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		if out, code, err := ask("POST", "/apis/storage.k8s.io/v1/storageclasses", class); err != nil || code >= 300 && code != http.StatusConflict {
			t.Fatal(code, err, out["message"])
		}
	}
	p := &provisioner{t, namespace}
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			p.round()
			select {
			case <-end:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		eventually(t, "the volumes to be released", func() bool { return len(p.volumes()) == 0 })
		close(end)
		wg.Wait()
	})
}

type provisioner struct {
	t         testing.TB
	namespace string
}

func (p *provisioner) list(path string) (out []obj) {
	list, code, err := ask("GET", path, nil)
	if err != nil || code != http.StatusOK {
		return nil // the next round asks again
	}
	items, _ := list["items"].([]any)
	for _, item := range items {
		out = append(out, item.(obj))
	}
	return out
}

func (p *provisioner) volumes() []obj {
	return p.list("/api/v1/persistentvolumes?labelSelector=" + "namespace%3D" + p.namespace)
}

// round does what is to be done now.
func (p *provisioner) round() {
	for _, v := range p.volumes() {
		if phase, _ := in(v, "status", "phase").(string); phase == "Released" || phase == "Failed" {
			os.RemoveAll(in(v, "spec", "local", "path").(string))
			ask("DELETE", "/api/v1/persistentvolumes/"+in(v, "metadata", "name").(string), nil)
		}
	}
	for _, c := range p.list("/api/v1/namespaces/" + p.namespace + "/persistentvolumeclaims") {
		class, _ := in(c, "spec", "storageClassName").(string)
		annotations, _ := in(c, "metadata", "annotations").(obj)
		node, _ := annotations["volume.kubernetes.io/selected-node"].(string)
		switch {
		case in(c, "status", "phase") != "Pending" || in(c, "metadata", "deletionTimestamp") != nil:
		case class == brokenClass:
			p.say(c, "the rack has no folders left")
		case class == promptClass, class == lazyClass && node != "":
			p.provide(c, class)
		}
	}
}

func (p *provisioner) provide(c obj, class string) {
	uid := in(c, "metadata", "uid").(string)
	folder := filepath.Join(place, "volumes", uid)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		p.t.Error(err)
		return
	}
	out, code, err := ask("POST", "/api/v1/persistentvolumes", obj{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": obj{"name": "pvc-" + uid, "labels": obj{"namespace": p.namespace}, "annotations": obj{"pv.kubernetes.io/provisioned-by": "sky.test/" + class}},
		"spec": obj{
			"capacity": obj{"storage": in(c, "spec", "resources", "requests", "storage")}, "accessModes": in(c, "spec", "accessModes"),
			"persistentVolumeReclaimPolicy": "Delete", "storageClassName": class, "local": obj{"path": folder},
			"claimRef": obj{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": p.namespace, "name": in(c, "metadata", "name"), "uid": uid},
			"nodeAffinity": obj{"required": obj{"nodeSelectorTerms": []any{obj{"matchExpressions": []any{
				obj{"key": "kubernetes.io/hostname", "operator": "In", "values": []any{"real-1"}}}}}}},
		}})
	if err == nil && code >= 300 && code != http.StatusConflict {
		p.t.Error("making a volume:", code, out["message"])
	}
}

// say is an event about a claim.
func (p *provisioner) say(c obj, message string) {
	now := time.Now().UTC().Format(time.RFC3339)
	ask("POST", "/api/v1/namespaces/"+p.namespace+"/events", obj{
		"apiVersion": "v1", "kind": "Event", "metadata": obj{"name": fmt.Sprintf("%s.%d", in(c, "metadata", "name"), time.Now().Unix()/10)},
		"involvedObject": obj{"kind": "PersistentVolumeClaim", "namespace": p.namespace, "name": in(c, "metadata", "name"), "uid": in(c, "metadata", "uid")},
		"type":           "Warning", "reason": "ProvisioningFailed", "message": message, "firstTimestamp": now, "lastTimestamp": now, "source": obj{"component": "sky.test"},
	})
}
