package sky

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// blobs is the upload side of a server.
type blobs struct {
	mu    sync.Mutex
	parts map[string]map[string][]byte // by id, by index
	fail  int                          // first tries that fail
}

func (b *blobs) handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /upload_v2/blob": func(w http.ResponseWriter, r *http.Request) {
			b.mu.Lock()
			defer b.mu.Unlock()
			fmt.Fprintf(w, `{"exists":%v}`, b.parts[r.URL.Query().Get("blob_id")] != nil)
		},
		"POST /upload_v2": func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.fail > 0 || err != nil {
				b.fail--
				w.WriteHeader(500)
				return
			}
			q := r.URL.Query()
			id := q.Get("upload_id")
			if b.parts[id] == nil {
				b.parts[id] = map[string][]byte{}
			}
			b.parts[id][q.Get("chunk_index")] = body
			status := "uploading"
			if fmt.Sprint(len(b.parts[id])) == q.Get("total_chunks") {
				status = "completed"
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "missing_chunks": nil})
		},
	}
}

func TestUpload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(file, []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	files := []UploadFile{
		{Name: "x/link", Mode: fs.ModeSymlink | 0o777, Target: "a.txt"},
		{Name: "x", Mode: fs.ModeDir | 0o755},
		{Name: "x/a.txt", Path: file, Mode: 0o640},
		{Name: "x/a.txt", Path: file, Mode: 0o640}, // named twice by a task
	}
	b := &blobs{parts: map[string]map[string][]byte{}, fail: 1}
	c := serve(t, b.handlers())
	var last, total int64
	id, err := c.Upload(t.Context(), files, func(s, n int64) { last, total = s, n })
	if err != nil || len(id) != 64 || last != total || total == 0 {
		t.Fatal(id, err, last, total)
	}
	z, err := zip.NewReader(bytes.NewReader(b.parts[id]["0"]), int64(len(b.parts[id]["0"])))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		if f.Name == "x/link" && f.ExternalAttrs != symlinkAttr {
			t.Errorf("link attributes %x", f.ExternalAttrs)
		}
	}
	if got := strings.Join(names, " "); got != "x/ x/a.txt x/link" {
		t.Errorf("archive holds %s", got)
	}
	delete(b.parts[id], "0")
	if again, err := c.Upload(t.Context(), files, nil); err != nil || again != id || len(b.parts[id]) != 0 {
		t.Errorf("the same files were sent again: %v", err)
	}
	if err := os.WriteFile(file, []byte("changed"), 0o640); err != nil {
		t.Fatal(err)
	}
	if other, err := c.Upload(t.Context(), files, nil); err != nil || other == id {
		t.Errorf("changed files have the same id: %v", err)
	}
}

// Whatever makes another tree makes another id, or it would not be sent.
func TestTheIDOfAnUploadCoversAllOfIt(t *testing.T) {
	file := func(name, text string, mode fs.FileMode) UploadFile {
		return UploadFile{Name: name, Mode: mode, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	seen := map[string]string{}
	for name, files := range map[string][]UploadFile{
		"a file":                   {file("a", "x", 0o644)},
		"one that can be run":      {file("a", "x", 0o755)},
		"other content":            {file("a", "y", 0o644)},
		"another name":             {file("b", "x", 0o644)},
		"a link":                   {{Name: "a", Mode: fs.ModeSymlink | 0o777, Target: "x"}},
		"to another target":        {{Name: "a", Mode: fs.ModeSymlink | 0o777, Target: "y"}},
		"a folder":                 {{Name: "a", Mode: fs.ModeDir | 0o755}},
		"of another mode":          {{Name: "a", Mode: fs.ModeDir | 0o700}},
		"an empty file":            {file("a", "", 0o644)},
		"a name with a line in it": {file("a\nb", "", 0o644)},
		"two files in its place":   {file("a", "", 0o644), file("b", "", 0o644)},
		"nothing":                  nil,
	} {
		id, err := archive(t.Context(), io.Discard, files)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same id", name, other)
		}
		seen[id] = name
	}
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDownload(t *testing.T) {
	const dir = "~/.sky/api_server/clients/u1/sky_logs/run-1"
	tests := []struct {
		name  string
		files map[string]string
		ok    bool
	}{
		{"absolute", map[string]string{"srv/home/.sky/api_server/clients/u1/sky_logs/run-1/1-a/run.log": "hello"}, true},
		{"climbing", map[string]string{"srv/home/.sky/api_server/clients/u1/sky_logs/run-1/../../../../../../etc/passwd": "x"}, false},
		{"elsewhere", map[string]string{"etc/passwd": "x"}, false},
		{"a neighbour with the same beginning", map[string]string{"srv/home/.sky/api_server/clients/u1/sky_logs/run-10/x": "x"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, map[string]http.HandlerFunc{"POST /download": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(headerHomePath, "/srv/home")
				_, _ = w.Write(zipOf(t, tt.files))
			}})
			home := t.TempDir()
			local, err := c.Download(t.Context(), []string{dir}, home)
			if !tt.ok {
				if err == nil {
					t.Error("it was taken")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(local[dir], "1-a", "run.log"))
			if err != nil || string(got) != "hello" || local[dir] != filepath.Join(home, "sky_logs", "run-1") {
				t.Errorf("%s: %q, %v", local[dir], got, err)
			}
		})
	}
}
