package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

const uploadedTask = `name: t
---
name: t
workdir: /home/eve/wd
envs:
  A: '08'
  B: 'yes'
num_nodes: 1
resources:
  cpus: 2.0
file_mounts:
  /data: /home/eve/data
  /remote: s3://bucket/x
  /bucket:
    name: b
    source: /home/eve/src
  /two:
    source: [/home/eve/src, /home/eve/data]
service:
  tls:
    keyfile: /home/eve/key
    certfile: /elsewhere/cert
run: |
  echo "a <b>"
file_mounts_mapping:
  /home/eve/wd: home/eve/wd
  /home/eve/data: home/eve/data
  /home/eve/src: /home/eve/src
  /home/eve/key: home/eve/key
`

func TestUploadedPathsBecomeOurs(t *testing.T) {
	w := newWorld(t)
	w.file(BlobDir("ab12", testBlob)+"/x", "")
	blob := testBlob
	raw, _ := json.Marshal(map[string]any{"task": uploadedTask, "file_mounts_blob_id": blob, "kept": 1})
	got := func(workdirOnly bool) map[string]any {
		t.Helper()
		b, err := w.server.localised(t.Context(), raw, "ab12", workdirOnly)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		if err := json.Unmarshal(b, &body); err != nil || body["kept"] != 1.0 {
			t.Fatal(body, err)
		}
		docs := strings.Split(body["task"].(string), "---\n")[1:]
		if len(docs) != 2 || docs[0] != `{"name":"t"}`+"\n" || !strings.Contains(docs[1], `"cpus":2.0`) {
			t.Fatalf("documents: %q", docs)
		}
		var task map[string]any
		if err := yaml.Unmarshal([]byte(docs[1]), &task); err != nil {
			t.Fatal(err)
		}
		return task
	}
	base := filepath.Join(w.home, BlobDir("ab12", testBlob))
	for _, c := range []struct {
		name        string
		workdirOnly bool
		mounts      string // base of mounts
	}{{"launch", false, base}, {"exec mounts nothing again", true, ""}} {
		task := got(c.workdirOnly)
		mounts := task["file_mounts"].(map[string]any)
		two := mounts["/two"].(map[string]any)["source"].([]any)
		tls := task["service"].(map[string]any)["tls"].(map[string]any)
		for path, pair := range map[string][2]any{
			"workdir":             {task["workdir"], base + "/home/eve/wd"},
			"a file mount":        {mounts["/data"], c.mounts + "/home/eve/data"},
			"a URL":               {mounts["/remote"], "s3://bucket/x"},
			"a bucket's source":   {mounts["/bucket"].(map[string]any)["source"], c.mounts + "/home/eve/src"},
			"a list of sources":   {two[1], c.mounts + "/home/eve/data"},
			"a key":               {tls["keyfile"], c.mounts + "/home/eve/key"},
			"what was not mapped": {tls["certfile"], "/elsewhere/cert"},
			"a text like a word":  {task["envs"].(map[string]any)["B"], "yes"},
			"a text like a count": {task["envs"].(map[string]any)["A"], "08"},
			"a script":            {task["run"], "echo \"a <b>\"\n"},
			"the mapping itself":  {task[mappingKey], nil},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s is %v, want %v", c.name, path, pair[0], pair[1])
			}
		}
	}
}

func TestUploadsThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	w.file(BlobDir("ab12", testBlob)+"/x", "")
	w.file(LegacyUploadDir("old1")+"/home/wd/x", "")
	launch := func(user, task, blob string) reply {
		body := map[string]any{"task": task, "cluster_name": "c", "env_vars": map[string]string{"SKYPILOT_USER_ID": user}}
		if blob != "" {
			body["file_mounts_blob_id"] = blob
		}
		b, _ := json.Marshal(body)
		return w.call(post, "/launch", string(b))
	}
	mapped := "workdir: /home/wd\nfile_mounts_mapping: {/home/wd: home/wd}\n"
	for _, c := range []struct {
		name, user, task, blob string
		want                   int
	}{
		{"an upload", "ab12", mapped, testBlob, 200},
		{"an upload of an old client", "old1", mapped, "", 200},
		{"a collected upload", "cd34", mapped, testBlob, 400},
		{"no id", "ab12", mapped, "../..", 400},
		{"a mapping out of it", "ab12", "workdir: /w\nfile_mounts_mapping: {/w: ../../../x}\n", testBlob, 400},
		{"aliases of aliases", "ab12", bomb(), testBlob, 400},
		{"nothing uploaded", "ab12", "workdir: /home/wd\nfile_mounts_mapping: {}\n", "", 200},
		{"no YAML at all, which the verb says", "ab12", "a: [\nfile_mounts_mapping\n", testBlob, 200},
	} {
		if r := launch(c.user, c.task, c.blob); r.status != c.want {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
	}
}

// bomb is a small task of 10^9 values.
func bomb() string {
	text := "file_mounts_mapping: {/w: w}\na: &a [x]\n"
	for i := range 9 {
		to, from := string(rune('b'+i)), string(rune('a'+i))
		text += to + ": &" + to + " [" + strings.Repeat("*"+from+", ", 9) + "*" + from + "]\n"
	}
	return text
}

func TestLegacyUploadsShareAFolder(t *testing.T) {
	w := newWorld(t)
	send := func(id, content string) reply {
		data := zipOf(t, zipEntry{"wd/a", content, 0}, zipEntry{"wd/" + content, "", 0})
		return w.call(post, "/upload?user_hash=ab12&upload_id="+id+"&chunk_index=0&total_chunks=1", string(data), "Content-Type", "application/octet-stream")
	}
	for i, content := range []string{"one", "two"} {
		if r := send(fmt.Sprintf("sky-2026-01-02-03-04-05-678901-0000000%d", i), content); !strings.Contains(r.body, "completed") {
			t.Fatal(r.body)
		}
	}
	dir := filepath.Join(w.home, LegacyUploadDir("ab12"), "wd")
	if b, err := os.ReadFile(filepath.Join(dir, "a")); string(b) != "two" {
		t.Error(string(b), err)
	}
	for _, f := range []string{"one", "two"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
	if r := send("../../x", "one"); r.status != 400 {
		t.Errorf("a bad id: %d", r.status)
	}
}

func TestOldUploadsAreCollected(t *testing.T) {
	w := newWorld(t)
	other := strings.Repeat("f", 64)
	w.file(BlobDir("ab12", testBlob)+"/x", "")
	w.file(BlobDir("ab12", other)+"/x", "")
	w.file(BlobDir("ab12", other)+".parts/part0", "")
	w.ask("/stop", `{"cluster_name":"c","file_mounts_blob_id":"`+testBlob+`","env_vars":{"SKYPILOT_USER_ID":"ab12"}}`)
	left := func() int {
		found, _ := filepath.Glob(filepath.Join(w.home, BlobDir("*", "*")))
		return len(found)
	}
	for _, c := range []struct {
		name string
		at   time.Time
		want int
	}{
		{"new ones stay", time.Now().Add(uploadKept - time.Minute), 3},
		{"old ones go, but for what is in use", time.Now().Add(uploadKept + time.Minute), 1},
	} {
		if err := w.server.collectUploads(t.Context(), c.at); err != nil || left() != c.want {
			t.Errorf("%s: %d left, %v", c.name, left(), err)
		}
	}
	close(w.block)
}
