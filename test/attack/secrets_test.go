//go:build attack && linux

package attack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// TestPlantedSecretsAreNowhere uses secrets in every way that there is: in tasks of
// clusters and managed jobs that end, fail and are cancelled, as passwords and
// tokens. Afterwards none is in any file, log, table or argument list.
func TestPlantedSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	c := count(t)
	s := newSite(t, false)
	w := s.w
	for _, name := range []string{"exec", "launch", "job", "failing", "cancelled", "running", "docker", "redacted", "variable", "env"} {
		s.passwords[" "+name] = "planted-" + name + "-0f3d9a7c51"
	}
	secrets := map[string]string{}
	for name, text := range s.passwords {
		if strings.HasPrefix(name, " ") {
			secrets["the secret of"+name] = text
		}
	}
	p := func(name string) string { return s.passwords[" "+name] }
	ada := s.as("ada")
	body := func(cluster, task string) map[string]any {
		return map[string]any{"cluster_name": cluster, "task": "resources: {infra: local}\n" + task}
	}
	ada.done("/launch", body("c", "secrets: {T: "+p("launch")+"}\nsetup: test -n \"$T\"\nrun: echo ${#T}\n"))
	ada.done("/exec", body("c", "secrets: {T: "+p("exec")+"}\nrun: test -n \"$T\"\n"))
	ada.done("/exec", body("c", "envs: {SIGNING_KEY: "+p("variable")+"}\nrun: test -n \"$SIGNING_KEY\"\n"))
	ada.result(ada.post("/launch", body("d", "secrets: {SKYPILOT_DOCKER_PASSWORD: "+p("docker")+", SKYPILOT_DOCKER_USERNAME: u, SKYPILOT_DOCKER_SERVER: 127.0.0.1:1}\nresources: {infra: local, cpus: 9999}\nrun: ls\n")))
	job := func(name, task string) {
		ada.done("/jobs/launch", map[string]any{"task": "name: " + name + "\nresources: {infra: local}\n" + task})
	}
	job("ends", "secrets: {T: "+p("job")+"}\nrun: test -n \"$T\"\n")
	job("env", "envs: {HF_TOKEN: "+p("env")+"}\nrun: test -n \"$HF_TOKEN\"\n")
	job("fails", "secrets: {T: "+p("failing")+"}\nrun: exit 3\n")
	job("cancelled", "secrets: {T: "+p("cancelled")+"}\nrun: sleep 1000\n")
	job("runs", "secrets: {T: "+p("running")+"}\nrun: test -n \"$T\" && touch "+w.Home+"/runs-now; sleep 1000\n")
	// Somebody types one where it does not belong; the client redacts what it tells.
	w.With("SKYPILOT_API_SERVER_ENDPOINT=http://ada:"+strings.ReplaceAll(s.passwords["ada"], " ", "%20")+"@"+s.address).
		Run("launch", "-y", "-d", "-c", "e", "--infra", "local", "--secret", "T="+p("redacted"), "--", "true")
	var token string
	if a := ada.post("/users/service-account-tokens", map[string]any{"token_name": "ci"}); a.status == 200 {
		if _, rest, ok := strings.Cut(string(a.body), `"token":"`); ok {
			token, _, _ = strings.Cut(rest, `"`)
			secrets["a token"] = token
		}
	}
	if token == "" {
		t.Error("no token was made")
	}
	for _, name := range []string{"ada", "uma"} {
		secrets["the password of "+name] = s.passwords[name]
	}
	queue := func() string { return string(ada.result(ada.post("/jobs/queue", map[string]any{})).body) }
	if !harness.Within(2*time.Minute, func() bool { _, err := os.Stat(w.Home + "/runs-now"); return err == nil }) {
		t.Errorf("the job that runs on does not run: %s", queue())
	}
	ada.result(ada.post("/jobs/cancel", map[string]any{"name": "cancelled"}))
	if !harness.Within(2*time.Minute, func() bool {
		q := queue()
		return strings.Contains(q, "SUCCEEDED") && strings.Contains(q, "FAILED") && strings.Contains(q, "CANCELLED")
	}) {
		t.Errorf("jobs do not end: %s", queue())
	}
	key := func(path string) bool { return filepath.Base(path) == "encryption.key" }
	running := map[string]string{"the secret of running": secrets["the secret of running"]}
	scan := func(when string) {
		c.add("scans", 1)
		// What is dropped when a job or request ends is dropped soon, not at once.
		var leaks []harness.Leak
		harness.Within(15*time.Second, func() bool {
			leaks = mustScan(t, secrets, key, w.Home)
			leaks = append(leaks, harness.ScanArguments(secrets, func(_, arguments string) bool { return strings.Contains(arguments, "--secret") })...)
			leaks = permitted(leaks, running, w.Home)
			return len(leaks) == 0
		})
		for _, l := range leaks {
			c.add("secrets at rest", 1)
			t.Errorf("%s: %s", when, l)
		}
	}
	scan("while a job runs")
	ada.result(ada.post("/jobs/cancel", map[string]any{"name": "runs"}))
	harness.Within(time.Minute, func() bool { return !strings.Contains(queue(), "RUNNING") })
	running = nil
	scan("after all jobs have ended")
	w.KillServer()
	scan("after the server was killed")
	w.Sky("api", "start")
	scan("after it came back")
	s.noFaults(c)
}

// permitted leaves out what a job that runs needs: its secrets on its own node.
func permitted(leaks []harness.Leak, running map[string]string, home string) (rest []harness.Leak) {
	for _, l := range leaks {
		if _, is := running[l.Secret]; is && strings.HasPrefix(l.Where, filepath.Join(home, ".sky/local")) {
			continue
		}
		rest = append(rest, l)
	}
	return rest
}
