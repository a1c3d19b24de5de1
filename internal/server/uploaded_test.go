package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// What a launch may bring to nodes is found by the server: nothing that a body
// says makes it the files of the server's machine.
func TestTheServerSaysWhichFilesARequestMayBring(t *testing.T) {
	local := newTestEnv(t)
	local.file(BlobDir("ab12", testBlob)+"/x", "")
	team := newTestEnv(t, people(t, map[string]string{"ann": "admin", "uma": "user"}))
	for _, name := range []string{"ann", "uma"} {
		team.file(BlobDir(auth.UserID(name), testBlob)+"/x", "")
	}
	for _, c := range []struct {
		name  string
		w     *testEnv
		as    string
		extra string
		head  []string
		want  state.RequestFiles
	}{
		{"the machine's owner", local, "", "", nil, state.RequestFiles{Own: true, Legacy: true}},
		{"the owner with an upload", local, "", `,"file_mounts_blob_id":"` + testBlob + `"`, nil, state.RequestFiles{Own: true, Upload: testBlob}},
		{"from elsewhere", local, "", "", []string{"X-Forwarded-For", "10.0.0.1"}, state.RequestFiles{Legacy: true}},
		{"a user", team, "uma", "", nil, state.RequestFiles{Legacy: true}},
		{"an administrator", team, "ann", "", nil, state.RequestFiles{Legacy: true}},
		{"a user with an upload", team, "uma", `,"file_mounts_blob_id":"` + testBlob + `"`, nil, state.RequestFiles{Upload: testBlob}},
		{"a user who says so", team, "uma", `,"own":true,"Files":{"own":true}`, nil, state.RequestFiles{Legacy: true}},
		{"an administrator who says so", team, "ann", `,"files":{"own":true,"upload":"x"}`, nil, state.RequestFiles{Legacy: true}},
	} {
		c.w.as = c.as
		r := c.w.call(post, "/launch", `{"task":"run: x","cluster_name":"c","env_vars":{"SKYPILOT_USER_ID":"ab12"}`+c.extra+`}`, c.head...)
		if r.status != 200 {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
			continue
		}
		req, err := c.w.store.Requests().Get(t.Context(), r.id())
		if err != nil || req.Files == nil || *req.Files != c.want {
			t.Errorf("%s: %+v %v", c.name, req.Files, err)
		}
	}
}

func TestUploadsThatCannotBeUsed(t *testing.T) {
	env := newTestEnv(t)
	env.file(BlobDir("ab12", testBlob)+"/x", "")
	launch := func(user, blob string) reply {
		b, _ := json.Marshal(map[string]any{"task": "run: x", "cluster_name": "c", "env_vars": map[string]string{"SKYPILOT_USER_ID": user}, "file_mounts_blob_id": blob})
		return env.call(post, "/launch", string(b))
	}
	for _, c := range []struct {
		name, user, blob string
		want             int
	}{
		{"an upload", "ab12", testBlob, 200},
		{"somebody else's upload, or one that was collected", "cd34", testBlob, 400},
		{"no id", "ab12", "../..", 400},
		{"an empty id", "ab12", "", 400},
	} {
		if r := launch(c.user, c.blob); r.status != c.want {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
	}
}

func TestAnUploadIsLookedForBelowItsUser(t *testing.T) {
	env := newTestEnv(t)
	env.file(BlobDir("ab12", testBlob)+"/home/wd/a", "1")
	mapped := &task.Task{FileMountsMapping: map[string]string{"/home/wd": "home/wd"}}
	for _, c := range []struct {
		name, user string
		found      state.RequestFiles
		good       bool
	}{
		{"an upload", "ab12", state.RequestFiles{Upload: testBlob}, true},
		{"somebody else's", "cd34", state.RequestFiles{Upload: testBlob}, false},
		{"a user that is a path", "../clients/ab12", state.RequestFiles{Upload: testBlob}, false},
		{"an id that is a path", "ab12", state.RequestFiles{Upload: "../blobs/" + testBlob}, false},
		{"nothing", "ab12", state.RequestFiles{}, false},
	} {
		have, err := env.server.Uploads.Files(t.Context(), c.user, c.found)
		if err == nil {
			_, err = have.Source(mapped, "/home/wd")
		}
		if good := err == nil; good != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLegacyUploadsShareAFolder(t *testing.T) {
	env := newTestEnv(t)
	send := func(id, content string) reply {
		data := zipOf(t, zipEntry{"wd/a", content, 0}, zipEntry{"wd/" + content, "", 0})
		return env.call(post, "/upload?user_hash=ab12&upload_id="+id+"&chunk_index=0&total_chunks=1", string(data), "Content-Type", "application/octet-stream")
	}
	for i, content := range []string{"one", "two"} {
		if r := send(fmt.Sprintf("sky-2026-01-02-03-04-05-678901-0000000%d", i), content); !strings.Contains(r.body, "completed") {
			t.Fatal(r.body)
		}
	}
	dir := filepath.Join(env.home, LegacyUploadDir("ab12"), "wd")
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
	env := newTestEnv(t)
	other := strings.Repeat("f", 64)
	env.file(BlobDir("ab12", testBlob)+"/x", "")
	env.file(BlobDir("ab12", other)+"/x", "")
	env.file(BlobDir("ab12", other)+".parts/part0", "")
	env.ask("/stop", `{"cluster_name":"c","file_mounts_blob_id":"`+testBlob+`","env_vars":{"SKYPILOT_USER_ID":"ab12"}}`)
	left := func() int {
		found, _ := filepath.Glob(filepath.Join(env.home, BlobDir("*", "*")))
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
		if err := env.server.collectUploads(t.Context(), c.at); err != nil || left() != c.want {
			t.Errorf("%s: %d left, %v", c.name, left(), err)
		}
	}
	close(env.block)
}
