package server

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	testBlob = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	uploadTo = "/upload_v2?user_hash=ab12&upload_id=" + testBlob
)

type zipEntry struct {
	name, content string
	mode          fs.FileMode
}

func zipOf(t testing.TB, entries ...zipEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, e.content)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (env *testEnv) blobPath(name string) string {
	return filepath.Join(env.home, BlobDir("ab12", testBlob), name)
}

func TestUploadInAnyOrder(t *testing.T) {
	env := newTestEnv(t)
	data := zipOf(t,
		zipEntry{"home/eve/wd/", "", 0}, zipEntry{"home/eve/wd/a.py", "print()", 0}, zipEntry{"home/eve/wd/run.sh", "#!", 0o755},
		zipEntry{"home/eve/wd/link", "a.py", fs.ModeSymlink | 0o777})
	if r := env.call(get, "/upload_v2/blob?user_hash=ab12&blob_id="+testBlob, ""); r.body != `{"exists":false}` {
		t.Fatal(r.body)
	}
	third := len(data) / 3
	parts := [][]byte{data[:third], data[third : 2*third], data[2*third:]}
	for i, want := range map[int]string{2: `{"status":"uploading","missing_chunks":["part0","part1"]}`} {
		if r := env.chunk(i, 3, parts[i]); r.body != want {
			t.Errorf("chunk %d: %s", i, r.body)
		}
	}
	if r := env.chunk(0, 3, parts[0]); r.body != `{"status":"uploading","missing_chunks":["part1"]}` {
		t.Errorf("chunk 0: %s", r.body)
	}
	for range 2 { // the second time it is there already
		if r := env.chunk(1, 3, parts[1]); r.body != `{"status":"completed","missing_chunks":null}` {
			t.Errorf("chunk 1: %s", r.body)
		}
	}
	if r := env.call(get, "/upload_v2/blob?user_hash=ab12&blob_id="+testBlob, ""); r.body != `{"exists":true}` {
		t.Error(r.body)
	}
	if b, err := os.ReadFile(env.blobPath("home/eve/wd/link")); string(b) != "print()" {
		t.Error(string(b), err)
	}
	if info, err := os.Stat(env.blobPath("home/eve/wd/run.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Error("run.sh cannot be run", err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(env.blobPath("")), "*"))
	if len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

func (env *testEnv) chunk(i, n int, data []byte) reply {
	return env.call(post, fmt.Sprintf("%s&chunk_index=%d&total_chunks=%d", uploadTo, i, n), string(data), "Content-Type", "application/octet-stream")
}

func TestParallelChunks(t *testing.T) {
	env := newTestEnv(t)
	env.api = "" // clients send no version with chunks
	data := zipOf(t, zipEntry{"f", strings.Repeat("x", 1000), 0})
	var wg sync.WaitGroup
	done := make(chan string, len(data)+1)
	n := 16
	for i := range n {
		wg.Go(func() { done <- env.chunk(i, n, data[i*len(data)/n:(i+1)*len(data)/n]).body })
	}
	wg.Wait()
	close(done)
	completed := false
	for body := range done {
		completed = completed || strings.Contains(body, "completed")
	}
	if b, err := os.ReadFile(env.blobPath("f")); !completed || len(b) != 1000 {
		t.Errorf("completed %v, %d bytes, %v", completed, len(b), err)
	}
}

// What an upload brings to nodes is what its author has: links as they are, and
// modes. Archives of other clients have those that they carry.
func TestAnUploadKeepsLinksAndModes(t *testing.T) {
	env := newTestEnv(t)
	data := zipOf(t,
		zipEntry{"wd/", "", fs.ModeDir | 0o750}, zipEntry{"wd/private", "x", 0o600}, zipEntry{"wd/run.sh", "x", 0o755}, zipEntry{"wd/shared", "x", 0o664},
		zipEntry{"wd/plain", "x", 0}, zipEntry{"wd/hidden", "x", 0o004}, zipEntry{"wd/deep/er/f", "x", 0o644}, zipEntry{"wd/fixed/", "", fs.ModeDir | 0o555}, zipEntry{"wd/fixed/f", "x", 0o444},
		zipEntry{`wd/back\slash`, "x", 0o644}, zipEntry{"wd/su", "x", fs.ModeSetuid | 0o755},
		zipEntry{"wd/.venv/bin/python3", "/usr/bin/python3", fs.ModeSymlink | 0o777}, zipEntry{"wd/up", "../../secret", fs.ModeSymlink | 0o777}, zipEntry{"wd/near", "run.sh", fs.ModeSymlink | 0o777})
	if r := env.chunk(0, 1, data); !strings.Contains(r.body, "completed") {
		t.Fatal(r.body)
	}
	for name, want := range map[string]string{
		"wd": "drwxr-x---", "wd/private": "-rw-------", "wd/run.sh": "-rwxr-xr-x", "wd/shared": "-rw-rw-r--", "wd/plain": "-rw-r--r--",
		"wd/hidden": "-r-----r--", "wd/deep/er": "drwxr-xr-x", "wd/fixed": "drwxr-xr-x", "wd/fixed/f": "-r--r--r--", `wd/back\slash`: "-rw-r--r--", "wd/su": "-rwxr-xr-x",
		"wd/.venv/bin/python3": "/usr/bin/python3", "wd/up": "../../secret", "wd/near": "run.sh",
	} {
		info, err := os.Lstat(env.blobPath(name))
		if err != nil {
			t.Error(err)
			continue
		}
		got := info.Mode().String()
		if info.Mode()&fs.ModeSymlink != 0 {
			got, _ = os.Readlink(env.blobPath(name))
		}
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestHostileUploads(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []zipEntry
	}{
		{"a path up", []zipEntry{{"../evil", "x", 0}}},
		{"a path up and down", []zipEntry{{"a/../../evil", "x", 0}}},
		{"an absolute path", []zipEntry{{"/evil", "x", 0}}},
		{"through a link out", []zipEntry{{"l", "..", fs.ModeSymlink}, {"l/evil", "x", 0}}},
		{"through an absolute link", []zipEntry{{"l", "/tmp", fs.ModeSymlink}, {"l/evil", "x", 0}}},
		{"a link through a link out", []zipEntry{{"l", "..", fs.ModeSymlink}, {"l/evil", "x", fs.ModeSymlink}}},
		{"writing through a link", []zipEntry{{"l", "a", fs.ModeSymlink}, {"l/../../evil", "x", 0}}},
		{"a file twice", []zipEntry{{"f", "x", 0}, {"f", "y", 0}}},
		{"a link in place of a folder", []zipEntry{{"d/f", "x", 0}, {"d", "e", fs.ModeSymlink}}},
	} {
		env := newTestEnv(t)
		r := env.chunk(0, 1, zipOf(t, c.entries...))
		if r.status != 400 {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
		if r := env.call(get, "/upload_v2/blob?user_hash=ab12&blob_id="+testBlob, ""); r.body != `{"exists":false}` {
			t.Errorf("%s: it was published", c.name)
		}
		_ = filepath.WalkDir(env.home, func(path string, d fs.DirEntry, _ error) error {
			if strings.Contains(d.Name(), "evil") {
				t.Errorf("%s: made %s", c.name, path)
			}
			return nil
		})
	}
	env := newTestEnv(t)
	if r := env.chunk(0, 1, []byte("no zip")); r.status != 400 {
		t.Errorf("no zip: %d", r.status)
	}
	if r := env.chunk(0, 1, zipOf(t, zipEntry{"f", "x", 0})); !strings.Contains(r.body, "completed") {
		t.Errorf("a good upload after a bad one: %s", r.body)
	}
	cut := zipOf(t, zipEntry{"f", strings.Repeat("abc", 1000), 0})
	cut[40] ^= 0xff
	if err := os.RemoveAll(env.blobPath("")); err != nil {
		t.Fatal(err)
	}
	if r := env.chunk(0, 1, cut); r.status != 400 {
		t.Errorf("a damaged entry: %d %s", r.status, r.body)
	}
}

func TestDownload(t *testing.T) {
	env := newTestEnv(t)
	logs := LogsDir("ab12")
	env.file(logs+"/run/tasks/run.log", "out")
	env.file(logs+"/run/other.log", "more")
	env.file(logs+"/second/x.log", "2")
	env.file("secret", "hush")
	if err := os.Symlink(filepath.Join(env.home, "secret"), filepath.Join(env.home, logs, "run", "link")); err != nil {
		t.Fatal(err)
	}
	vars := `"env_vars":{"SKYPILOT_USER_ID":"ab12"}`
	r := env.call(post, "/download", `{"folder_paths":["~/`+logs+`/run","`+env.home+"/"+logs+`/second"],`+vars+`}`)
	if r.status != 200 || r.header.Get("X-Home-Path") != env.home {
		t.Fatalf("%d %s %v", r.status, r.body, r.header)
	}
	got := unzipped(t, r.body)
	base := strings.TrimPrefix(env.home, "/") + "/" + logs
	want := map[string]string{base + "/run/": "", base + "/run/tasks/": "", base + "/run/tasks/run.log": "out",
		base + "/run/other.log": "more", base + "/second/": "", base + "/second/x.log": "2"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v", slices.Sorted(maps.Keys(got)))
	}
	r = env.call(post, "/download?relative=items", `{"folder_paths":["~/`+logs+`/second"],`+vars+`}`)
	if got := unzipped(t, r.body); got["second/x.log"] != "2" {
		t.Errorf("relative: %v", got)
	}
	for _, p := range []string{"~/" + logs + "/run/link", "~/" + logs + "/none"} {
		if r := env.call(post, "/download", `{"folder_paths":["`+p+`"],`+vars+`}`); r.status != 404 {
			t.Errorf("%s: %d", p, r.status)
		}
	}
	if r := env.call(post, "/download", `{"folder_paths":["~/`+logs+`/run"],"env_vars":{"SKYPILOT_USER_ID":"cd34"}}`); r.status != 400 {
		t.Errorf("somebody else's logs: %d", r.status)
	}
}

// TestDownloadFromAnotherServer: logs that one server gathered are fetched from
// another one, with another home folder.
func TestDownloadFromAnotherServer(t *testing.T) {
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "shared.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	shared := func(home string) *Downloads {
		d := NewDownloads(home, db)
		d.shared = &logstore.Files{Store: db} // as a database that servers share has it
		return d
	}
	a, b := shared(t.TempDir()), newTestEnv(t)
	b.server.Downloads = shared(b.home)
	gathered := filepath.Join(a.Dir("ab12"), "c1-sky-2026", "1-train")
	if err := os.MkdirAll(gathered, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(gathered, "run.log"), []byte("out"), 0o600); err != nil {
		t.Fatal(err)
	}
	dirs, err := a.Offer(t.Context(), "ab12", map[string]string{"1": gathered, "2": filepath.Join(a.Dir("ab12"), "c1-sky-2026", "2-silent")})
	if err != nil {
		t.Fatal(err)
	}
	if want := "~/" + LogsDir("ab12") + "/c1-sky-2026/1-train"; dirs["1"] != want {
		t.Errorf("%q, want %q", dirs["1"], want)
	}
	if err := os.RemoveAll(a.home); err != nil { // the server is gone for good
		t.Fatal(err)
	}
	ask := func(user string) reply {
		return b.call(post, "/download", fmt.Sprintf(`{"folder_paths":[%q,%q],"env_vars":{"SKYPILOT_USER_ID":%q}}`, dirs["1"], dirs["2"], user))
	}
	r := ask("ab12")
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	base := strings.TrimPrefix(b.home, "/") + "/" + LogsDir("ab12") + "/c1-sky-2026/"
	want := map[string]string{base + "1-train/": "", base + "1-train/run.log": "out", base + "2-silent/": ""}
	if got := unzipped(t, r.body); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if r := ask("cd34"); r.status != 400 {
		t.Errorf("somebody else's logs: %d", r.status)
	}
	// They go some hours later, but not the folder that others are in.
	old := filepath.Join(b.server.Downloads.Dir("ab12"), "c1-sky-2026")
	managed := filepath.Join(b.server.Downloads.Dir("ab12"), managedDownloads, "managed-job-1")
	if err := os.MkdirAll(managed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{old, filepath.Dir(managed)} {
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-2*downloadKept)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.server.Downloads.sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old logs stay: %v", err)
	}
	if _, err := os.Stat(managed); err != nil {
		t.Error(err)
	}
}

func unzipped(t *testing.T, body string) map[string]string {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name] = string(b)
	}
	return got
}
