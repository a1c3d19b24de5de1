//go:build kubernetes && linux

package kubernetes

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
)

// The contract of volumes, asked of a real cluster.
func TestTheContractOfVolumes(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]cloud.Volume{
		"for one node": {Type: cloud.VolumeClaim, SizeGB: 1},
		"shared":       {Type: cloud.VolumeClaim, SizeGB: 1, AccessMode: cloud.ReadWriteMany, Class: lazyClass},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := newNamespace(t)
			provisioning(t, namespace)
			settings := patched(namespace, nil)
			at := func(kind string) string { return "/api/v1/namespaces/" + namespace + "/" + kind }
			cloudtest.Volumes(t, func(t testing.TB) cloudtest.VolumeHarness {
				dir := t.TempDir()
				make := func(testing.TB) cloud.Provider {
					return kubernetes.New(kubernetes.Options{Contexts: kubernetes.NewContexts(dir), Dir: filepath.Join(dir, "places"), Sections: func() catalog.Sections {
						return func(string) map[string]any { return settings }
					}})
				}
				contexts := kubernetes.NewContexts(dir)
				shell := func(t testing.TB, n cloud.Node, command string) string {
					res, err := contexts.Exec(t.Context(), n.Reach.Host, []string{"/bin/sh", "-c", command}, nil)
					if err != nil || res.Code != 0 {
						t.Fatalf("%s: %v %+v", command, err, res)
					}
					return string(res.Stdout)
				}
				spec := small(cloud.ClusterID{}, 0)
				spec.Settings = settings
				return cloudtest.VolumeHarness{
					Volume:  v,
					Nowhere: &cloud.Volume{Class: "no-such-class"},
					Harness: cloudtest.Harness{
						Provider: make(t), Another: make, Spec: spec,
						Inventory: func(t testing.TB) (all []string) {
							for _, kind := range []string{"pods", "services", "persistentvolumeclaims"} {
								all = append(all, names(t, at(kind))...)
							}
							return all
						},
						Write: func(t testing.TB, n cloud.Node, name, data string) { shell(t, n, "echo -n "+data+" >"+name) },
						Read:  func(t testing.TB, n cloud.Node, name string) string { return shell(t, n, "cat "+name) },
					},
					Foreign: func(t testing.TB, name string) {
						mustAsk(t, "POST", at("persistentvolumeclaims"), claimOf(name, obj{"app": "theirs"}))
					},
					Away: func(t testing.TB, name string) { ask("DELETE", at("persistentvolumeclaims/"+name), nil) },
					Vanish: func(t testing.TB, id cloud.ClusterID) {
						mustAsk(t, "DELETE", at("pods")+"?labelSelector="+cloud.TagCluster+"%3D"+id.Name, obj{"gracePeriodSeconds": 0})
					},
				}
			})
		})
	}
}

func claimOf(name string, labels obj) obj {
	return obj{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": obj{"name": name, "labels": labels},
		"spec": obj{"accessModes": []any{"ReadWriteOnce"}, "resources": obj{"requests": obj{"storage": "1Gi"}}}}
}

// volume is a file that asks for one.
func (w *workstation) volume(name, more string) string {
	return w.write(name+".volume.yaml", "name: "+name+"\ninfra: kubernetes\n"+more)
}

// storage lets claims get volumes. In the end all volumes are deleted.
func (w *workstation) storage() {
	w.t.Helper()
	provisioning(w.t, w.namespace)
	w.t.Cleanup(func() {
		w.run("down", "-a", "-y")
		w.run("volumes", "delete", "-a", "-y")
	})
}

// keeps wants a volume not to be deleted, and to be told all of want; as with
// storage, the command itself succeeds.
func (w *workstation) keeps(want []string, name string) {
	w.t.Helper()
	out, _ := w.run("volumes", "delete", "-y", name)
	w.has(out, append(want, "Error deleting"), []string{"volumes", "delete", name})
	w.sky([]string{name}, "volumes", "ls")
}

func (w *workstation) claims() []string { return w.names("persistentvolumeclaims") }

func TestAVolumeThatOutlivesClusters(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.storage()
	w.sky(nil, "volumes", "apply", "-y", w.volume("data", "type: k8s-pvc\nsize: 1\nlabels: {team: blue}\n"))
	w.sky(nil, "volumes", "apply", "-y", w.volume("data", "type: k8s-pvc\nsize: 1\nlabels: {team: blue}\n"))
	if n := len(w.claims()); n != 1 {
		t.Fatalf("%d claims", n)
	}
	labels := in(mustAsk(t, "GET", w.path("persistentvolumeclaims/"+w.claims()[0]), nil), "metadata", "labels").(obj)
	for key, value := range map[string]string{"parent": "skypilot", "skypilot-name": "data", "team": "blue"} {
		if labels[key] != value {
			t.Errorf("label %s is %v", key, labels[key])
		}
	}
	w.sky([]string{"group 1000", "SUCCEEDED"}, "launch", "-y", "-c", "one", w.task("one.yaml", "localhost/shell:1",
		"volumes: {/data: data}\nrun: |\n  echo what stays > /data/word && echo group $(stat -c %g /data)\n"))
	w.keeps([]string{"in use", "one"}, "data")
	w.sky([]string{"IN_USE"}, "volumes", "ls", "-r")
	w.sky(nil, "down", "-y", "one")
	// Another cluster, in the home folder and from a folder of the volume; the image
	// has no shell of its own.
	w.sky([]string{"here: what stays", "there: what stays", "SUCCEEDED"}, "launch", "-y", "-c", "two", w.task("two.yaml", "localhost/bare:1",
		"volumes:\n  ~/my data/v: data\n  /sub: {name: data, sub_path: deep/er}\nrun: |\n  cp ~/'my data/v/word' /sub/copy && echo here: $(cat ~/'my data/v/word') && echo there: $(cat ~/'my data/v/deep/er/copy')\n"))
	w.keeps([]string{"in use", "two"}, "data")
	w.sky(nil, "down", "-y", "two")
	w.sky([]string{"deleted"}, "volumes", "delete", "-y", "data")
	if left := w.claims(); len(left) > 0 {
		t.Errorf("claims are left: %v", left)
	}
	w.refused([]string{"data"}, "launch", "-y", "-c", "three", w.task("three.yaml", "localhost/shell:1", "volumes: {/data: data}\nrun: echo no\n"))
}

func TestAVolumeForManyNodes(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.storage()
	w.sky(nil, "volumes", "apply", "-y", w.volume("alone", "type: k8s-pvc\nsize: 1\n"))
	w.refused([]string{"alone", "ReadWriteOnce"}, "launch", "-y", "-c", "gang", w.task("no.yaml", "localhost/shell:1", "num_nodes: 2\nvolumes: {/data: alone}\nrun: echo no\n"))
	w.sky(nil, "volumes", "apply", "-y", w.volume("shared", "type: k8s-pvc\nsize: 1\nconfig: {access_mode: ReadWriteMany, storage_class_name: "+lazyClass+"}\n"))
	w.sky([]string{"SUCCEEDED", "all are here"}, "launch", "-y", "-c", "gang", w.task("gang.yaml", "localhost/shell:1", `num_nodes: 2
volumes: {/data: shared}
run: |
  touch /data/$SKYPILOT_NODE_RANK
  until [ -e /data/0 ] && [ -e /data/1 ]; do sleep 0.2; done
  [ $SKYPILOT_NODE_RANK = 1 ] || echo all are here
`))
	w.sky(nil, "down", "-y", "gang")
	w.sky([]string{"✓"}, "volumes", "delete", "-y", "shared", "alone")
	if left := w.claims(); len(left) > 0 {
		t.Errorf("claims are left: %v", left)
	}
}

func TestVolumesThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings+"  provision_timeout: 5\n")
	w.storage()
	w.refused([]string{`no storage class "nvme"`, promptClass, lazyClass}, "volumes", "apply", "-y", w.volume("fast", "type: k8s-pvc\nsize: 1\nconfig: {storage_class_name: nvme}\n"))
	w.refused([]string{"gone-claim"}, "volumes", "apply", "-y", w.volume("gone-claim", "type: k8s-pvc\nuse_existing: true\n"))
	mustAsk(t, "POST", w.path("persistentvolumeclaims"), claimOf("theirs", obj{"app": "theirs"}))
	w.sky(nil, "volumes", "apply", "-y", w.volume("theirs", "type: k8s-pvc\nuse_existing: true\n"))
	w.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "guest", w.task("guest.yaml", "localhost/shell:1", "volumes: {/data: theirs}\nrun: touch /data/x\n"))
	w.sky(nil, "down", "-y", "guest")
	w.refused(nil, "launch", "-y", "-c", "home", w.task("home.yaml", "localhost/shell:1", "volumes: {/root: theirs}\nrun: echo no\n"))
	w.sky([]string{"✓"}, "volumes", "delete", "-y", "theirs")
	if left := w.claims(); !slices.Equal(left, []string{"theirs"}) {
		t.Errorf("claims: %v", left)
	}
	mustAsk(t, "DELETE", w.path("persistentvolumeclaims/theirs"), nil)
	// A class that makes nothing: the launch says which claim, and what was said of
	// it, and leaves nothing.
	w.refused([]string{"ProvisioningFailed: the rack has no folders left"}, "launch", "-y", "-c", "stuck", w.task("stuck.yaml", "localhost/shell:1",
		"volumes: {/data: {size: 1, config: {storage_class_name: "+brokenClass+"}}}\nrun: echo no\n"))
	if left := append(w.claims(), w.names("pods")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	w.sky(nil, "volumes", "apply", "-y", w.volume("never", "type: k8s-pvc\nsize: 1\nconfig: {storage_class_name: "+brokenClass+"}\n"))
	eventually(t, "the volume to be seen as not ready", func() bool {
		out, _ := w.run("volumes", "ls", "-r", "-v")
		return strings.Contains(out, "NOT_READY")
	})
	w.sky([]string{"✓"}, "volumes", "delete", "-y", "never")
}

func TestAVolumeThatGoesWithItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.storage()
	own := "volumes: {/scratch: {size: 1}}\n"
	w.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "own", w.task("own.yaml", "localhost/shell:1", own+"run: touch /scratch/x\n"))
	if n := len(w.claims()); n != 1 {
		t.Errorf("%d claims", n)
	}
	w.sky([]string{"SUCCEEDED"}, "exec", "own", "--", "ls /scratch/x")
	w.sky(nil, "down", "-y", "own")
	if left := w.claims(); len(left) > 0 {
		t.Errorf("claims are left: %v", left)
	}
	w.refused(nil, "launch", "-y", "-c", "bad", w.task("bad.yaml", "localhost/NO:1", own+"run: echo no\n"))
	if left := append(w.claims(), w.names("pods")...); len(left) > 0 {
		t.Errorf("left of a launch that failed: %v", left)
	}
}

func TestFoldersOfTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	folder := filepath.Join(w.home, "folder")
	w.sky(nil, "volumes", "apply", "-y", w.volume("disk", "type: k8s-hostpath\nconfig: {host_path: "+folder+", cleanup_on_deletion: true}\n"))
	w.refused([]string{"/etc"}, "volumes", "apply", "-y", w.volume("etc", "type: k8s-hostpath\nconfig: {host_path: /etc/x, cleanup_on_deletion: true}\n"))
	w.sky([]string{"SUCCEEDED"}, "launch", "-y", "-c", "writes", w.task("writes.yaml", "localhost/shell:1", "volumes: {/disk: disk}\nrun: mkdir /disk/a && echo kept > /disk/a/.b\n"))
	if b, err := os.ReadFile(filepath.Join(folder, "a/.b")); err != nil || string(b) != "kept\n" {
		t.Errorf("on the machine: %q %v", b, err)
	}
	w.keeps([]string{"in use"}, "disk")
	w.sky(nil, "down", "-y", "writes")
	w.sky([]string{"✓"}, "volumes", "delete", "-y", "disk")
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("on the machine: %v %v", left, err)
	}
	if left := w.names("pods"); len(left) > 0 {
		t.Errorf("pods are left: %v", left)
	}
	os.WriteFile(filepath.Join(folder, "mine"), nil, 0o600)
	w.sky(nil, "volumes", "apply", "-y", w.volume("kept", "type: k8s-hostpath\nconfig: {host_path: "+folder+"}\n"))
	w.sky([]string{"✓"}, "volumes", "delete", "-y", "kept")
	if _, err := os.Stat(filepath.Join(folder, "mine")); err != nil {
		t.Error(err)
	}
}

// kill ends the server at once.
func (w *workstation) kill() {
	w.t.Helper()
	if w.of().ServerPID() == 0 {
		w.t.Fatal("no server runs")
	}
	w.of().KillServer()
}

// A server that dies while a launch makes its volume, and while the volume goes,
// leaves nothing behind.
func TestAServerThatDiesAmongVolumes(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t, settings)
	w.storage()
	task := w.task("own.yaml", "localhost/shell:1", "volumes: {/scratch: {size: 1}}\nrun: echo done > /scratch/x\n")
	w.sky(nil, "api", "start")
	w.sky(nil, "launch", "-y", "--async", "-c", "own", task)
	eventually(t, "the claim", func() bool { return len(w.claims()) > 0 })
	w.kill()
	w.sky(nil, "api", "start")
	eventually(t, "the cluster", func() bool {
		out, _ := w.run("queue", "own")
		return strings.Contains(out, "SUCCEEDED")
	})
	if n := len(w.claims()); n != 1 {
		t.Errorf("%d claims", n)
	}
	w.sky(nil, "down", "-y", "--async", "own")
	eventually(t, "a pod to go", func() bool {
		for _, name := range w.names("pods") {
			pod, code, err := ask("GET", w.path("pods/"+name), nil)
			if err == nil && (code == http.StatusNotFound || in(pod, "metadata", "deletionTimestamp") != nil) {
				return true
			}
		}
		return len(w.names("pods")) == 0
	})
	w.kill()
	w.sky(nil, "api", "start")
	eventually(t, "everything to be given back", func() bool {
		return len(w.claims())+len(w.names("pods")) == 0
	})
	w.sky(nil, "volumes", "apply", "-y", "--async", w.volume("data", "type: k8s-pvc\nsize: 1\n"))
	w.kill()
	w.sky(nil, "api", "start")
	w.sky(nil, "volumes", "apply", "-y", w.volume("data", "type: k8s-pvc\nsize: 1\n"))
	if n := len(w.claims()); n != 1 {
		t.Errorf("%d claims", n)
	}
	w.sky(nil, "volumes", "delete", "-y", "--async", "data")
	w.kill()
	w.sky(nil, "api", "start")
	eventually(t, "the volume to be deleted", func() bool {
		out, _ := w.run("volumes", "ls")
		return len(w.claims()) == 0 && !strings.Contains(out, "data")
	})
}
