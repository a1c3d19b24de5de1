package server

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// untar is the files of a dump.
func untar(t *testing.T, body []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v in %.200q", err, body)
	}
	files := map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func unzipAll(t *testing.T, body []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatalf("%v in %.200q", err, body)
	}
	files := map[string]string{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}

// TestDumpHoldsNoSecret puts secrets wherever the server keeps or meets them,
// and what tells of them into every text that a dump takes up.
func TestDumpHoldsNoSecret(t *testing.T) {
	ctx := t.Context()
	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIKEYKEYKEYKEYSECRETBYTES\nsecondLineOfTheKeySECRETBYTES==\n-----END EC PRIVATE KEY-----"
	secrets := map[string]string{
		"task secret":     `tasksecret"quoted\one`,
		"task variable":   "taskvariable1234",
		"task password":   "dockerpass1234",
		"environment":     "environmentvalue77",
		"connection":      "dbpassword8899",
		"configuration":   "configuredvalue55",
		"pod variable":    "podvalue66aa",
		"job secret":      "managedjobvalue42",
		"bearer":          "bearervalue.991",
		"server token":    "sky_eyJhbGciOiJIUzI1NiJ9abcdef0123456789",
		"signed":          "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
		"aws":             "AKIAABCDEFGHIJKLMNOP",
		"url":             "urlpassword31",
		"assigned":        "assignedvalue64",
		"hash":            "$2b$12$abcdefghijklmnopqrstuv",
		"key, first line": "MHcCAQEEIKEYKEYKEYKEYSECRETBYTES",
		"key, last line":  "secondLineOfTheKeySECRETBYTES==",
		"body":            "onlyinthebody00",
		"result":          "onlyintheresult00",
		"certificates":    "onlyinthecertificates00",
	}
	t.Setenv("MY_SERVICE_TOKEN", secrets["environment"])
	t.Setenv(config.EnvDatabase, "postgres://sky:"+secrets["connection"]+"@db/sky")
	settings, err := config.FromMap(config.Server, config.Origin{}, map[string]any{
		"kubernetes": map[string]any{"pod_config": map[string]any{"spec": map[string]any{
			"imagePullSecret": secrets["configuration"],
			"containers":      []any{map[string]any{"env": []any{map[string]any{"name": "HF_TOKEN", "value": secrets["pod variable"]}}}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	env := newTestEnv(t, people(t, map[string]string{"ada": "admin", "uma": "user"}), func(d *Deps) {
		d.Config = func() *config.Config { return settings }
	})

	// Every text that tells of things tells of every secret.
	told := []string{key}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		v := secrets[name]
		switch name {
		case "bearer":
			told = append(told, "Authorization: Bearer "+v)
		case "url":
			told = append(told, "dial postgres://sky:"+v+"@db:5432/x: refused")
		case "assigned":
			told = append(told, `wandb_api_key: "`+v+`"`, "run --password "+v, "GH_TOKEN="+v)
		case "key, first line", "key, last line", "body", "result", "certificates":
		default:
			told = append(told, "saw "+v+" there")
		}
	}
	everything := strings.Join(told, "\n")
	quoted, _ := json.Marshal(everything)
	env.file(serverLog, "time=now level=INFO msg=started\n"+everything+"\nmsg="+string(quoted)+"\nthe last line\n")

	taskYAML := "name: train\nrun: " + secrets["body"] + "\nenvs:\n  SSH_KEY: " + secrets["task variable"] + "\nsecrets:\n  ANYTHING: '" + secrets["task secret"] + "'\n  SKYPILOT_DOCKER_PASSWORD: " + secrets["task password"] + "\n"
	body, _ := json.Marshal(map[string]any{"task": taskYAML, "env_vars": map[string]string{"SKYPILOT_USER_ID": "abcd1234"}})
	failure, _ := json.Marshal(api.ErrorRecord{Type: "ValueError", Message: everything})
	r := &state.Request{ID: "11111111-2222-3333-4444-555555555555", Name: "sky.launch", Status: api.RequestRunning, UserID: "abcd1234", ClusterName: "dev",
		Body: body, Error: failure, ReturnValue: []byte(`"` + secrets["result"] + `"`), StatusMsg: everything, CreatedAt: env.store.Now()}
	if err := env.store.Requests().Create(ctx, r); err != nil {
		t.Fatal(err)
	}
	if err := env.store.Clusters().Create(ctx, &state.Cluster{Name: "dev", Hash: "h", NameOnCloud: "dev-1", Status: api.ClusterInit, Requested: everything,
		Certs: state.Seal([]byte(secrets["certificates"] + key)), CreationYAML: taskYAML, LastUse: "sky launch " + secrets["body"], NumNodes: 1,
		Nodes: []cloud.Node{{ID: "i-1", Reason: everything}}}); err != nil {
		t.Fatal(err)
	}
	if err := env.store.Attempts().Begin(ctx, state.Attempt{Token: "t", ClusterName: "dev", ClusterHash: "h"}); err != nil {
		t.Fatal(err)
	}
	if err := env.store.Attempts().End(ctx, "t", state.AttemptEnd{Outcome: "refused", Message: everything}); err != nil {
		t.Fatal(err)
	}
	dag := "name: job\n---\nname: job\nrun: x\nsecrets:\n  S: " + secrets["job secret"] + "\n"
	if _, err := env.store.ManagedJobs().Submit(ctx, &state.ManagedJob{RequestID: "q", Name: "job", SubmittedAt: env.store.Now(), Dag: []byte(dag), UserYAML: secrets["body"],
		Tasks: []*state.ManagedTask{{Name: "job", Status: api.ManagedPending, Details: everything, Failure: everything}}}); err != nil {
		t.Fatal(err)
	}

	env.as = "uma"
	if r := env.call(post, "/debug/dump", `{}`); r.status != 403 {
		t.Errorf("a user got a dump: %d", r.status)
	}
	env.as = "ada"
	tarred := env.call(post, "/debug/dump", `{"client_info":{"note":`+string(quoted)+`}}`)
	if tarred.status != 200 {
		t.Fatalf("%d %s", tarred.status, tarred.body)
	}
	made := env.call(post, "/debug/dump_create", `{"cluster_names":["dev"],"recent_minutes":60.0,"managed_job_ids":[7.0],"client_info":{"version":"x","token":"y"}}`)
	if made.status != 200 {
		t.Fatalf("%d %s", made.status, made.body)
	}
	id := made.header.Get(api.HeaderRequestID)
	deadline := time.Now().Add(time.Minute)
	for {
		q, err := env.store.Requests().Get(ctx, id)
		if err == nil && q.Status.Terminal() {
			if q.Status != api.RequestSucceeded || !strings.Contains(string(q.ReturnValue), id+".zip") {
				t.Fatalf("%s %s %s", q.Status, q.ReturnValue, q.Error)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("dump_create did not end: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	zipped := env.call(get, "/debug/dump_download/"+id+".zip", "")
	if zipped.status != 200 {
		t.Fatalf("%d %s", zipped.status, zipped.body)
	}
	for kind, files := range map[string]map[string]string{"tar": untar(t, []byte(tarred.body)), "zip": unzipAll(t, []byte(zipped.body))} {
		for _, name := range []string{"about.json", "config.yaml", "requests.json", "clusters.json", "attempts.json", "managed_jobs.json", "metrics.txt", "server.log"} {
			if files[name] == "" {
				t.Errorf("%s: no %s among %v: %s", kind, name, slices.Sorted(maps.Keys(files)), files["problems.txt"])
			}
		}
		for what, has := range map[string]string{"requests.json": r.ID, "clusters.json": `"dev-1"`, "attempts.json": `"refused"`, "managed_jobs.json": `"job"`,
			"metrics.txt": "sky_build_info", "server.log": "the last line", "config.yaml": "HF_TOKEN", "about.json": api.ProductVersion} {
			if !strings.Contains(files[what], has) {
				t.Errorf("%s: %s does not tell %s:\n%.2000s", kind, what, has, files[what])
			}
		}
		for name, text := range files {
			for what, v := range secrets {
				inside, _ := json.Marshal(v)
				if strings.Contains(text, v) || strings.Contains(text, string(inside[1:len(inside)-1])) {
					t.Errorf("%s: %s holds a secret (%s): %.3000s", kind, name, what, text)
				}
			}
		}
	}
}

func TestDumpOfOneClusterLeavesOutTheOthers(t *testing.T) {
	env := newTestEnv(t)
	for _, name := range []string{"one", "two"} {
		if err := env.store.Clusters().Create(t.Context(), &state.Cluster{Name: name, Hash: name, Status: api.ClusterInit, NumNodes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	r := env.call(post, "/debug/dump", `{"cluster_names":["one"]}`)
	files := untar(t, []byte(r.body))
	if text := files["clusters.json"]; !strings.Contains(text, `"one"`) || strings.Contains(text, `"two"`) {
		t.Errorf("%s", text)
	}
	// There is no log, which is no reason to tell nothing.
	if !strings.Contains(files["problems.txt"], "server.log") {
		t.Errorf("problems: %q", files["problems.txt"])
	}
	if r := env.call(get, "/debug/dump_download/nosuch.zip", ""); r.status != 404 {
		t.Errorf("a dump that nobody asked for: %d", r.status)
	}
	list, err := env.store.Audit().List(t.Context(), state.AuditFilter{Action: "/debug/dump"})
	if err != nil || len(list) != 1 || list[0].UserID == auth.UserID("") {
		t.Errorf("audit: %v %v", list, err)
	}
}
