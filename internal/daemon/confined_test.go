package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// configured is a client of somebody's whose configuration travels along.
func (w *team) configured(name string, config map[string]any) *sky.Client {
	w.t.Helper()
	c, err := sky.New(sky.Options{Endpoint: w.url, HTTPClient: &http.Client{Transport: asUser(name)}, Environ: []string{"HOME=" + w.home}, Config: config})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// said is the log of a request, and how it failed.
func said[T any](w *team) func(*sky.Request[T], error) (string, error) {
	return func(r *sky.Request[T], err error) (string, error) {
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		_, err = r.Wait(w.t.Context(), &out, sky.StreamOptions{})
		return out.String(), err
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// A user's configuration is laid over the server's in every call; what would make
// the server execute something is left out of it, and said to be.
func TestAUsersConfigurationExecutesNothing(t *testing.T) {
	w := newTeam(t, teamConfig)
	evil := map[string]any{"aws": map[string]any{"ssh_proxy_command": "touch /tmp/owned"}, "jobs": map[string]any{"controller": map[string]any{"mode": "cluster"}}}
	out, err := said[map[string]map[string][]string](w)(w.configured("otto", evil).Check(t.Context(), api.CheckBody{Clouds: []string{"local"}}))
	if err != nil || !strings.Contains(out, "aws.ssh_proxy_command") || !strings.Contains(out, "only its administrators may set them") {
		t.Errorf("otto: %q, %v", out, err)
	}
	out, err = said[map[string]map[string][]string](w)(w.configured("ada", evil).Check(t.Context(), api.CheckBody{Clouds: []string{"local"}}))
	if err != nil || strings.Contains(out, "ssh_proxy_command") {
		t.Errorf("ada: %q, %v", out, err)
	}
	// Else the jobs controller would be asked, and rented for a launch.
	page, err := got[api.JobsQueueResult](w)(w.configured("otto", evil).JobsQueue(t.Context(), api.JobsQueueBody{}))
	if err != nil || page.Total != 0 {
		t.Errorf("otto's queue: %v, %v", page, err)
	}
	dag := "name: x\n---\nrun: 'true'\nconfig: {aws: {ssh_proxy_command: touch /tmp/owned}}\nresources: {infra: local}\n"
	_, err = got[api.LaunchResult](w)(w.as("otto").Launch(t.Context(), api.LaunchBody{Task: dag, ClusterName: "c"}))
	wants(t, "a task's config section", err, `unknown field "aws" in config`)
}

const twoContexts = `
apiVersion: v1
kind: Config
current-context: open
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1"}}
contexts:
- {name: open, context: {cluster: c, user: nobody}}
- {name: closed, context: {cluster: c, user: plugin}}
users:
- {name: nobody, user: {}}
- name: plugin
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [%q], interactiveMode: Never}
`

// A context may have a program that gets its credentials. A user makes it run only
// where the server's configuration lets them use the context.
func TestAUserNamesNoContextThatIsNotListed(t *testing.T) {
	w := newTeam(t, strings.Replace(teamConfig, "[local]", "[local, kubernetes]", 1))
	ran := filepath.Join(t.TempDir(), "ran")
	file := filepath.Join(w.home, ".kube", "config")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, fmt.Appendf(nil, twoContexts, ran), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	ctx := t.Context()
	const not = "is not one of those that kubernetes.allowed_contexts"
	all := map[string]any{"kubernetes": map[string]any{"allowed_contexts": "all"}}
	for what, c := range map[string]*sky.Client{"by name": w.as("otto"), "with a configuration": w.configured("otto", all)} {
		_, err := got[api.KubernetesNodes](w)(c.KubernetesNodeInfo(ctx, new("closed")))
		wants(t, "nodes "+what, err, not)
		_, err = got[[]api.ContextGPUs](w)(c.KubernetesGPUs(ctx, new("closed"), nil, nil, false))
		wants(t, "GPUs "+what, err, not)
		_, err = got[any](w)(c.VolumeApply(ctx, api.VolumeApplyBody{Name: "v", VolumeType: "k8s-pvc", Cloud: "kubernetes", Region: new("closed"), Size: sizeOf(1)}))
		wants(t, "a volume "+what, err, not)
		_, err = got[any](w)(c.VolumeApply(ctx, api.VolumeApplyBody{Name: "v", VolumeType: "k8s-pvc", Cloud: "kubernetes", Region: new("open"), Size: sizeOf(1),
			Config: map[string]any{"namespace": "kube-system"}}))
		wants(t, "a namespace "+what, err, `namespace "kube-system" is not the one`)
	}
	_, err := got[any](w)(w.as("otto").LocalUp(ctx, false, "closed", nil))
	wants(t, "local up", err, "may not")
	if exists(t, ran) {
		t.Fatal("a user made the server run the plugin of a context")
	}
	_, err = got[api.KubernetesNodes](w)(w.as("ada").KubernetesNodeInfo(ctx, new("closed")))
	if err == nil || strings.Contains(err.Error(), not) || !exists(t, ran) {
		t.Errorf("an administrator: %v", err)
	}
}

// The server's own ssh must not be led to a machine of a user's.
func TestAUsersClusterIsNoHostOfTheServersAccount(t *testing.T) {
	w := newTeam(t, teamConfig)
	if home := w.d.sshConfigHome(); home != "" {
		t.Error("clusters get entries in the ssh configuration of", home)
	}
}

// sizeOf is a size as clients send it.
func sizeOf(gb int) *api.IntOrString {
	v := new(api.IntOrString)
	if err := v.UnmarshalJSON(fmt.Append(nil, gb)); err != nil {
		panic(err)
	}
	return v
}
