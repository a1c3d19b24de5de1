//go:build kubernetes && linux

package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// objectStore is a store that pods and the server reach.
func objectStore(t *testing.T) (*memory.Store, string) {
	t.Helper()
	s := &memory.Store{}
	if err := s.Bucket("data").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	l := listenOnNode(t)
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: s.ServeS3("ID")}}
	srv.Start()
	t.Cleanup(srv.Close)
	return s, srv.URL
}

// listenOnNode listens at the real machine's own address, which pods and this machine reach.
func listenOnNode(t *testing.T) net.Listener {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(place, "network"))
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.Open("/run/netns/" + strings.TrimSpace(string(name)))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address+":0")
	if err := errors.Join(err, unix.Setns(int(here.Fd()), unix.CLONE_NEWNET)); err != nil {
		t.Fatal(err)
	}
	return l
}

// applyBroker does what kubectl apply does with deploy/kubernetes/mount-broker.yaml, with
// the tests' binary in place of an image of sky. The namespace goes with the test.
func applyBroker(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/mount-broker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o obj
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if o["kind"] == "Namespace" {
			mustAsk(t, "POST", "/api/v1/namespaces", o)
			t.Cleanup(func() {
				mustAsk(t, "DELETE", "/apis/apps/v1/namespaces/sky-system/daemonsets/sky-mount-broker", nil)
				eventually(t, "the broker to end", func() bool { return len(names(t, "/api/v1/namespaces/sky-system/pods")) == 0 })
				mustAsk(t, "DELETE", "/api/v1/namespaces/sky-system", nil)
				os.RemoveAll("/run/sky-mount")
			})
			continue
		}
		spec := in(o, "spec", "template", "spec").(obj)
		main := spec["containers"].([]any)[0].(obj)
		main["image"], main["imagePullPolicy"] = "localhost/shell:1", "IfNotPresent"
		main["volumeMounts"] = append(main["volumeMounts"].([]any), obj{"name": "binary", "mountPath": "/usr/bin/sky"})
		spec["volumes"] = append(spec["volumes"].([]any), obj{"name": "binary", "hostPath": obj{"path": binary, "type": "File"}})
		spec["nodeSelector"] = obj{"kubernetes.io/hostname": "real-1"} // simulated machines run nothing
		mustAsk(t, "POST", "/apis/apps/v1/namespaces/sky-system/daemonsets", o)
	}
	eventually(t, "the broker", func() bool {
		ready, _ := in(mustAsk(t, "GET", "/apis/apps/v1/namespaces/sky-system/daemonsets/sky-mount-broker", nil), "status", "numberReady").(float64)
		return ready == 1
	})
}

// Pods without any privilege mount buckets by the broker, and say what is missing without it.
func TestUnprivilegedPodsMountByTheBroker(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	s, url := objectStore(t)
	credentials := []string{"AWS_ACCESS_KEY_ID=ID", "AWS_SECRET_ACCESS_KEY=secret", "AWS_ENDPOINT_URL_S3=" + url, "AWS_EC2_METADATA_DISABLED=true"}
	const mounts = `file_mounts:
  ~/direct: {source: s3://data, mode: MOUNT}
  ~/cached: {source: s3://data, mode: MOUNT_CACHED}
`
	without := newWorkstation(t, settings)
	without.env = append(without.env, credentials...)
	without.refused([]string{"can mount nothing", "kubernetes.mount_broker", "mode: COPY works"}, "launch", "-y", "-c", "n", without.task("n.yaml", "localhost/shell:1", mounts+"run: ls\n"))

	w := newWorkstation(t, settings+"  mount_broker: true\n")
	w.env = append(w.env, credentials...)
	task := w.task("t.yaml", "localhost/shell:1", mounts+`run: |
  echo one > ~/direct/one && cat ~/cached/one && echo two > ~/cached/two
  grep CapEff /proc/self/status
  ls /dev/fuse || echo no fuse here
`)
	// The broker is not there yet: the launch says so before the job, and the same one goes on later.
	w.refused([]string{"the broker of sky-mount", "does not answer", "mode: COPY"}, "launch", "-y", "-c", "c", task)
	applyBroker(t)
	w.sky([]string{"the broker of sky-mount on each machine mounts"}, "launch", "-y", "--dryrun", "-c", "other", task)
	out := w.sky([]string{"✓ Mounted s3://data at ~/direct", "one", "no fuse here", "SUCCEEDED"}, "launch", "-y", "-c", "c", task)
	if strings.Contains(out, "CapEff:	000001ffffffffff") {
		t.Errorf("the pod is privileged:\n%s", out)
	}
	for key, want := range map[string]string{"one": "one\n", "two": "two\n"} {
		r, err := s.Bucket("data").Get(t.Context(), key, storage.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(r); string(text) != want {
			t.Errorf("%s is %q", key, text)
		}
		r.Close()
	}
	// The process that serves the mounts dies, and they come back by the broker.
	w.sky([]string{"SUCCEEDED"}, "exec", "c", `killed=
for p in /proc/[0-9]*; do
  case $(tr '\0' ' ' <$p/cmdline) in *"sky-mount mount "*) kill -9 ${p#/proc/} && killed=1 ;; esac
done
test "$killed" && until cat ~/direct/two; do sleep 0.2; done`)
	w.sky(nil, "down", "-y", "c")
}
