//go:build attack && linux

package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

const (
	plantedFile = "the planted file of the server 8c1f"
	plantedEnv  = "the planted variable of the server 5e77"
)

// TestUsersReadAndRunNothingOfTheServer lets a user who logs in try everything that
// a task or a request can name: the server's files, programs, addresses and its own
// machine. Nothing of the server's arrives where the user can read, and nothing
// runs as the server.
func TestUsersReadAndRunNothingOfTheServer(t *testing.T) {
	t.Parallel()
	c := count(t)
	s := newSite(t, true, "SKY_ATTACK_PLANTED="+plantedEnv)
	secrets := map[string]string{"a planted file": plantedFile, "a planted variable": plantedEnv, "the first administrator's password": lastOf(s.w.Env, "SKYPILOT_INITIAL_BASIC_AUTH=ada:")}
	planted, err := os.MkdirTemp("", "sky-planted-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(planted) })
	for _, name := range []string{"file", "file.env", "vms.csv", "id_rsa", "sub/file"} {
		os.MkdirAll(filepath.Dir(filepath.Join(planted, name)), 0o755)
		if err := os.WriteFile(filepath.Join(planted, name), []byte(plantedFile+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(planted, "file")
	database := filepath.Join(s.w.Home, ".sky/api_server/sky.db")
	marker := func(name string) string { return filepath.Join(planted, "ran-"+name) }
	uma := s.as("uma")

	// An upload of her own, which tasks may point into, and one with a chain of links.
	mine, a := uma.upload(archive(t, entry{name: "ok", text: "mine"}, entry{name: "sub/ok", text: "mine"}))
	if a.status != 200 {
		t.Fatalf("a good upload: %s", a)
	}
	deep := strings.Repeat("d/", 8)
	above := strings.Repeat("../", 7)
	chained, _ := uma.upload(archive(t, entry{name: deep + "L", text: above, mode: os.ModeSymlink}, entry{name: "e", text: deep + "L/" + above, mode: os.ModeSymlink}))

	// Machines of FluffyCloud share the disk of this one.
	arrived := planted + "-arrived"
	t.Cleanup(func() { os.RemoveAll(arrived) })
	const on = "resources: {infra: fluffycloud, cpus: 1}\n"
	up := "../../../../../../../../../../../../.."
	type attempt struct {
		name, path, task string
		more             map[string]any
	}
	tasks := []attempt{
		{"a file mount", "", "file_mounts: {" + arrived + ": " + file + "}\nrun: cat " + arrived + "\n", nil},
		{"a file mount below home", "", "file_mounts: {~/x-PLACE: " + file + "}\nrun: cat ~/x-PLACE\n", nil},
		{"the database", "", "file_mounts: {~/db-PLACE: " + database + "}\nrun: head -c 100 ~/db-PLACE\n", nil},
		{"a folder", "", "file_mounts: {~/x-PLACE: " + planted + "}\nrun: cat ~/x-PLACE/file\n", nil},
		{"a workdir", "", "workdir: " + planted + "\nrun: cat file\n", nil},
		{"the home as a workdir", "", "workdir: ~/.sky\nrun: ls -la\n", nil},
		{"a relative workdir", "", "workdir: " + up + planted + "\nrun: cat file\n", nil},
		{"a storage source", "", "file_mounts: {~/x-PLACE: {source: " + planted + ", mode: COPY}}\nrun: cat ~/x-PLACE/file\n", nil},
		{"a storage with a store", "", "file_mounts: {~/x-PLACE: {name: b, source: " + planted + ", store: s3, mode: COPY}}\nrun: cat ~/x-PLACE/file\n", nil},
		{"a file address", "", "file_mounts: {~/x-PLACE: \"file://" + file + "\"}\nrun: cat ~/x-PLACE\n", nil},
		{"a mapping above", "", "file_mounts: {~/x-PLACE: /a}\nfile_mounts_mapping: {/a: " + up + file + "}\nrun: cat ~/x-PLACE\n", map[string]any{"file_mounts_blob_id": mine}},
		{"a mapping to an absolute path", "", "file_mounts: {~/x-PLACE: /a}\nfile_mounts_mapping: {/a: " + file + "}\nrun: cat ~/x-PLACE\n", map[string]any{"file_mounts_blob_id": mine}},
		{"a mapping of something else", "", "file_mounts: {~/x-PLACE: " + file + "}\nfile_mounts_mapping: {/a: ok}\nrun: cat ~/x-PLACE\n", map[string]any{"file_mounts_blob_id": mine}},
		{"a mapping through a chain of links", "", "file_mounts: {~/x-PLACE: /a}\nfile_mounts_mapping: {/a: e" + up + file + "}\nrun: cat ~/x-PLACE\n", map[string]any{"file_mounts_blob_id": chained}},
		{"a chain of links", "", "file_mounts: {~/x-PLACE: /a}\nfile_mounts_mapping: {/a: e}\nrun: find ~/x-PLACE/ | head\n", map[string]any{"file_mounts_blob_id": chained}},
		{"somebody's upload", "", "workdir: /a\nfile_mounts_mapping: {/a: .}\nrun: cat ok\n", map[string]any{"file_mounts_blob_id": "../../../" + s.ids["ada"]}},
		{"the place of the home", "", "file_mounts: {~/x-PLACE: \"/@the-home-of-the-api-server@/.sky/api_server/sky.db\"}\nrun: cat ~/x-PLACE\n", map[string]any{"file_mounts_blob_id": mine}},
		{"a git workdir of a file", "", "workdir: {url: \"file://" + planted + "\"}\nrun: cat file\n", nil},
		{"a git helper", "", "workdir: {url: \"ext::sh -c touch% " + marker("git") + "\"}\nrun: ls\n", nil},
		{"a git option", "", "workdir: {url: \"--upload-pack=touch " + marker("git2") + "\", ref: x}\nrun: ls\n", nil},
		{"another price list", "/launch", "run: ls\n", map[string]any{"catalog_dir": planted, "dryrun": true, "explain": true}},
		{"another price list of a plan", "/optimize", "", map[string]any{"dag": "resources: {infra: aws, cpus: 1}\nrun: ls\n", "catalog_dir": planted}},
		{"infra local", "", "resources: {infra: local}\nrun: env\n", map[string]any{"cluster_name": "mine"}},
		{"infra docker", "", "resources: {infra: docker}\nrun: env\n", map[string]any{"cluster_name": "mine"}},
		{"infra local in any_of", "", "resources: {any_of: [{infra: local}]}\nrun: env\n", map[string]any{"cluster_name": "mine"}},
		{"allowing local for oneself", "", "resources: {infra: local}\nrun: env\n", map[string]any{"cluster_name": "mine", "override_skypilot_config": map[string]any{"allowed_clouds": []string{"local", "fluffycloud"}}}},
		{"local allowed by the task", "", "config: {allowed_clouds: [local]}\nresources: {infra: local}\nrun: env\n", map[string]any{"cluster_name": "mine"}},
		{"an image of a file", "", "resources: {infra: fluffycloud, image_id: \"docker:/" + file + "\"}\nrun: env\n", map[string]any{"cluster_name": "mine"}},
		{"a price list of the task", "", "config: {catalog: {dir: " + planted + "}}\nrun: ls\n", nil},
	}
	for cloudName, settings := range map[string]map[string]any{
		"aws":         {"ssh_proxy_command": "touch MARK", "credential_process": "touch MARK", "profile": "x"},
		"gcp":         {"ssh_proxy_command": "touch MARK"},
		"kubernetes":  {"kubeconfig": "MARK", "ssh_proxy_command": "touch MARK", "allowed_contexts": []string{"x"}},
		"fluffycloud": {"ssh_proxy_command": "touch MARK"},
		"ssh":         {"proxy_command": "touch MARK"},
		"docker":      {"run_options": []string{"-v", "/:/host"}},
	} {
		for key, value := range settings {
			name := cloudName + "." + key
			v := any(strings.ReplaceAll(fmt.Sprint(value), "MARK", marker(name)))
			if _, is := value.(string); !is {
				v = value
			}
			for _, infra := range []string{cloudName, "fluffycloud"} {
				tasks = append(tasks,
					attempt{"the setting " + name, "", "resources: {infra: " + infra + ", cpus: 1}\nrun: env\n", map[string]any{"cluster_name": "mine", "override_skypilot_config": map[string]any{cloudName: map[string]any{key: v}}}})
			}
		}
	}
	var read []byte // all that the server answers
	hear := func(a answer) answer {
		read = append(append(read, a.body...), '\n')
		return a
	}
	uma.done("/launch", map[string]any{"cluster_name": "umas", "task": on + "run: echo hi\n"})
	for n, at := range tasks {
		c.add("attempts", 1)
		task := strings.ReplaceAll(at.task, "PLACE", fmt.Sprint(n))
		if !strings.Contains(task, "resources:") {
			task = on + task
		}
		for _, path := range []string{"/launch", "/exec", "/jobs/launch"} {
			if at.path != "" && at.path != path && !(at.path == "/optimize" && path == "/launch") {
				continue
			}
			body := map[string]any{"cluster_name": "umas", "task": task}
			if path == "/jobs/launch" {
				if !long() && n%4 != 0 { // each is a machine
					continue
				}
				body = map[string]any{"task": "name: a\n" + task}
			}
			for k, v := range at.more {
				if k != "cluster_name" || path != "/jobs/launch" {
					body[k] = v
				}
			}
			to := path
			if at.path == "/optimize" {
				to = at.path
			}
			a := hear(uma.post(to, body))
			if id := a.header.Get("X-Skypilot-Request-Id"); a.status == 200 && id != "" {
				hear(uma.within(90*time.Second, "GET", "/api/stream?request_id="+id, nil, ""))
				r := hear(uma.within(time.Minute, "GET", "/api/get?request_id="+id, nil, ""))
				if r.status == 200 {
					c.add("accepted", 1)
				}
			}
		}
	}

	// A script that runs when the state of a job changes.
	callback := marker("callback")
	job := uma.post("/jobs/launch", map[string]any{"task": "name: calls\n" + on + "event_callback: |\n  env > " + callback + ".$JOB_STATUS\n  cat " + callback + ".* > $HOME/callback-saw\nrun: echo hi\n"})
	hear(uma.result(job))
	ended := harness.Within(90*time.Second, func() bool {
		a := uma.result(uma.post("/jobs/queue", map[string]any{}))
		return strings.Contains(string(a.body), "SUCCEEDED") || strings.Contains(string(a.body), "FAILED") || job.status >= 400
	})
	if !ended {
		t.Error("the job with a callback does not end")
	}
	time.Sleep(2 * time.Second)
	saw, _ := filepath.Glob(callback + ".*")
	for _, f := range saw {
		b, _ := os.ReadFile(f)
		c.add("callbacks that ran", 1)
		if strings.Contains(string(b), "HOME="+s.w.Home+"\n") || strings.Contains(string(b), "SKYPILOT_INITIAL_BASIC_AUTH") || strings.Contains(string(b), plantedEnv) {
			c.add("ran as the server", 1)
			t.Errorf("an event_callback ran as the server, with:\n%.800s", b)
			break
		}
	}

	// Calls that name files.
	for _, path := range []string{planted, file, s.w.Home + "/.sky", database, s.w.Home + "/.sky/clients/" + s.ids["uma"] + "/../../api_server", "~/.sky/api_server", "../../../.sky/api_server/sky.db", s.w.Home + "/.sky/clients/" + s.ids["uma"] + "/file_mounts/blobs/" + chained + "/e"} {
		c.add("attempts", 1)
		hear(uma.post("/download", map[string]any{"folder_paths": []string{path}}))
		for _, query := range []string{"/api/stream?log_path=", "/dashboard/", "/debug/dump_download/"} {
			hear(uma.get(query + strings.ReplaceAll(path, "/", "%2F")))
			hear(uma.get(query + strings.TrimPrefix(path, "/")))
		}
		hear(uma.post("/provision_logs", map[string]any{"cluster_name": path}))
		hear(uma.result(uma.post("/volumes/apply", map[string]any{"name": "v", "volume_type": "k8s-pvc", "cloud": "kubernetes", "config": map[string]any{"path": path}})))
		hear(uma.result(uma.post("/recipes/create", map[string]any{"name": "r", "recipe_type": "cluster", "content": "workdir: " + path + "\nrun: ls\n"})))
		hear(uma.post("/validate", map[string]any{"dag": "workdir: " + path + "\nrun: ls\n"}))
		hear(uma.result(uma.post("/serve/up", map[string]any{"service_name": "s", "task": "service: {readiness_probe: /, replicas: 1}\nworkdir: " + path + "\nrun: ls\n"})))
	}

	for _, l := range mustScan(t, secrets, nil, filepath.Join(s.cloud.Dir, "machines")) {
		c.add("secrets that arrived", 1)
		t.Errorf("on the user's machine: %s", l)
	}
	machines, _ := filepath.Glob(filepath.Join(s.cloud.Dir, "machines/*/home/*"))
	for _, f := range machines {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), "SQLite format 3") {
			c.add("secrets that arrived", 1)
			t.Errorf("the server's database is on the user's machine: %s", f)
		}
	}
	answers := filepath.Join(t.TempDir(), "answers")
	if err := os.WriteFile(answers, read, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range mustScan(t, secrets, nil, answers) {
		c.add("secrets that arrived", 1)
		t.Errorf("in the server's answers: %s: %.600s", l, around(string(read), secrets[l.Secret]))
	}
	ran, _ := filepath.Glob(marker("*"))
	for _, f := range ran {
		if strings.HasPrefix(f, callback+".") {
			continue
		}
		c.add("ran as the server", 1)
		t.Errorf("%s was made on the server's machine", filepath.Base(f))
	}
	s.noFaults(c)
}

func around(text, part string) string {
	i := strings.Index(text, part)
	return text[max(0, i-400):min(len(text), max(0, i)+200)]
}

func mustScan(t *testing.T, secrets map[string]string, spare func(string) bool, folders ...string) []harness.Leak {
	t.Helper()
	leaks, err := harness.Scan(secrets, spare, folders...)
	if err != nil {
		t.Error(err)
	}
	return leaks
}
