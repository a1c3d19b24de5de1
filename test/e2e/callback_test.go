//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
)

// throughProxy sends what a proxy in front of the server sends for a user.
type throughProxy string

func (u throughProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Test", string(u))
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	return http.DefaultTransport.RoundTrip(r)
}

const planted = "pl4nted-admin-passw0rd"

// callbackTask tells of every callback in files of its own, and takes a moment for
// the last one.
func callbackTask(dir string) string {
	return fmt.Sprintf(`name: told
envs: {GREETING: hello}
event_callback: |
  echo "$JOB_STATUS" >> %[1]s/order
  echo "told $GREETING $JOB_STATUS of $TASK_NAME on $CLUSTER_NAME"
  cat /proc/$$/environ | tr '\0' '\n' > %[1]s/env-$JOB_STATUS
  [ "$JOB_STATUS" != SUCCEEDED ] || { touch %[1]s/begun; sleep 4; echo x >> %[1]s/ended; }
resources: {infra: local}
run: echo working
`, dir)
}

func words(path string) []string {
	b, _ := os.ReadFile(path)
	return strings.Fields(string(b))
}

// unspoiled checks what callbacks saw of their environment.
func unspoiled(t *testing.T, dir string, also ...string) {
	t.Helper()
	known := append([]string{"GREETING", "SKYPILOT_TASK_ID", "SKYPILOT_TASK_IDS", "TASK_ID", "TASK_NAME", "JOB_ID", "JOB_STATUS", "CLUSTER_NAME", "EVENT_TYPE",
		"PATH", "HOME", "PWD", "SHLVL", "_", "OLDPWD"}, also...)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(planted)) {
			t.Errorf("%s has the administrator's password:\n%s", filepath.Base(f), b)
		}
		if !strings.HasPrefix(filepath.Base(f), "env-") {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if name, _, ok := strings.Cut(line, "="); ok && !slices.Contains(known, name) {
				t.Errorf("%s has the variable %s", filepath.Base(f), strings.TrimSpace(line))
			}
		}
	}
}

// On a server with logins a callback is its user's program: it runs on the job's
// node and sees nothing of the server. A server that dies meanwhile waits for it
// in its next life.
func TestACallbackRunsOnItsJobsNode(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t).with("SKY_PLANTED="+planted, "SKYPILOT_INITIAL_BASIC_AUTH=ada:"+planted)
	dir := filepath.Join(w.home, "told")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.write(".sky/config.yaml", "rbac: {default_role: user}\nallowed_clouds: [local]\n")
	w.write(".sky/.server.yaml", "auth: {external_proxy: {enabled: true, header_name: X-Test}}\n")
	w.sky("api", "start")
	uma, err := sky.New(sky.Options{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", w.port), HTTPClient: &http.Client{Transport: throughProxy("uma")},
		Environ: []string{"HOME=" + w.home}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := uma.LaunchJob(ctx, api.JobsLaunchBody{Task: "name: told\n---\n" + callbackTask(dir)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last callback begins", 2*time.Minute, func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
	w.killServer()
	w.sky("api", "start")
	eventually(t, "the job is done", 2*time.Minute, func() bool {
		r, err := uma.JobsQueue(ctx, api.JobsQueueBody{})
		if err != nil {
			return false
		}
		page, err := r.Get(ctx)
		return err == nil && len(page.Jobs) == 1 && page.Jobs[0].Status == "SUCCEEDED" && len(w.folders()) == 0
	})
	if got := words(filepath.Join(dir, "order")); !slices.Equal(got, []string{"STARTED", "SUCCEEDED"}) {
		t.Errorf("called for %v", got)
	}
	if got := words(filepath.Join(dir, "ended")); len(got) != 1 {
		t.Errorf("the last callback ended %d times", len(got))
	}
	unspoiled(t, dir, "SKY_NODE", "SKY_RANK", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONUNBUFFERED", "BASH_ENV")
	for _, name := range []string{"STARTED", "SUCCEEDED"} {
		env, _ := os.ReadFile(filepath.Join(dir, "env-"+name))
		wants(t, string(env), "HOME="+filepath.Join(w.home, ".sky/local")+"/", "SKY_NODE=", "JOB_STATUS="+name)
	}
	log, err := os.ReadFile(filepath.Join(w.home, ".sky/api_server/jobs/1/controller.log"))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, string(log), "callback for SUBMITTED not run: no node", "callback for STARTING not run: no node", "(callback for STARTED) told hello STARTED of told on told-1",
		"callback for STARTED ran on cluster told-1", "callback for SUCCEEDED ran on cluster told-1")
	if strings.Contains(string(log), planted) {
		t.Error("the job's log has the administrator's password")
	}
}

// Without logins the owner of the job is the owner of the server: callbacks run on
// this machine at every change, and without what is in the server's environment.
func TestACallbackOnOnesOwnMachine(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t).with("SKY_PLANTED=" + planted)
	dir := filepath.Join(w.home, "told")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.sky("jobs", "launch", "-y", w.write("task.yaml", callbackTask(dir)))
	w.done("1.0")
	if got := words(filepath.Join(dir, "order")); !slices.Equal(got, []string{"SUBMITTED", "STARTING", "STARTED", "SUCCEEDED"}) {
		t.Errorf("called for %v", got)
	}
	unspoiled(t, dir)
	env, _ := os.ReadFile(filepath.Join(dir, "env-STARTED"))
	wants(t, string(env), "HOME="+w.home+"\n", "GREETING=hello", "EVENT_TYPE=Spot")
}
