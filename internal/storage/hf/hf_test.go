package hf

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/storetest"
)

// hub answers as the Hub does, for one repository or bucket. What is larger than 100
// bytes comes from another server, which must not see the token.
type hub struct {
	t         *testing.T
	name      string // "me/model", "buckets/me/data"
	files     map[string]string
	elsewhere string
}

func serveHub(t *testing.T, name string, files map[string]string) (endpoint string) {
	t.Helper()
	h := &hub{t: t, name: name, files: files}
	keeper := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent to another server")
		}
		w.Header().Set("ETag", `"named differently"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(files[r.URL.Query().Get("file")]))
	}))
	t.Cleanup(keeper.Close)
	h.elsewhere = keeper.URL
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func (h *hub) describe(path string) map[string]any {
	text := h.files[path]
	e := map[string]any{"type": "file", "path": path, "size": len(text)}
	switch {
	case strings.HasPrefix(h.name, "buckets/"):
		e["xetHash"] = fmt.Sprintf("%x", sha256.Sum256([]byte("xet"+text)))
		e["mtime"] = "2026-01-02T03:04:05.678Z"
	default:
		e["oid"] = fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
		if len(text) > 100 {
			e["lfs"] = map[string]any{"oid": fmt.Sprintf("%x", sha256.Sum256([]byte(text))), "size": len(text)}
		}
	}
	return e
}

func (h *hub) refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.WriteHeader(status)
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer hf_token" {
		h.refuse(w, http.StatusUnauthorized, "")
		return
	}
	path := r.URL.EscapedPath()
	api, revision := "/api/"+h.name, ""
	if !strings.HasPrefix(h.name, "buckets/") {
		revision = "/refs%2Fpr%2F1"
		if !strings.Contains(h.name, "sets/") {
			api = "/api/models/" + h.name
		}
	}
	rest, ok := strings.CutPrefix(path, api)
	if content, is := strings.CutPrefix(path, "/"+h.name+"/resolve"+revision+"/"); is {
		h.content(w, r, content)
		return
	}
	if !ok {
		h.refuse(w, http.StatusNotFound, "RepoNotFound")
		return
	}
	switch {
	case rest == "" || rest == "/revision"+revision:
		fmt.Fprint(w, `{"createdAt":"2026-01-01T00:00:00.000Z"}`)
	case rest == "/paths-info"+revision && r.Method == http.MethodPost:
		var in struct{ Paths []string }
		json.NewDecoder(r.Body).Decode(&in)
		out := []any{}
		for _, p := range in.Paths {
			if _, ok := h.files[p]; ok {
				out = append(out, h.describe(p))
			} else if h.isFolder(p) {
				out = append(out, map[string]any{"type": "directory", "path": p})
			}
		}
		json.NewEncoder(w).Encode(out)
	case rest == "/tree"+revision || strings.HasPrefix(rest, "/tree"+revision+"/"):
		folder, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(rest, "/tree"+revision), "/"))
		if err != nil || folder != "" && !h.isFolder(folder) {
			h.refuse(w, http.StatusNotFound, "EntryNotFound")
			return
		}
		h.list(w, r, folder)
	default:
		h.refuse(w, http.StatusNotFound, "")
	}
}

func (h *hub) isFolder(p string) bool {
	for f := range h.files {
		if strings.HasPrefix(f, p+"/") {
			return true
		}
	}
	return false
}

// list gives folders before files, as the Hub does.
func (h *hub) list(w http.ResponseWriter, r *http.Request, folder string) {
	var files, folders []any
	seen := map[string]bool{}
	for _, f := range slices.Sorted(maps.Keys(h.files)) {
		below, ok := strings.CutPrefix(f, folder+"/")
		if folder == "" {
			below, ok = f, true
		}
		if !ok {
			continue
		}
		at := strings.TrimSuffix(f, below)
		for i, c := range below {
			if d := at + below[:i]; c == '/' && !seen[d] && (r.URL.Query().Get("recursive") == "true" || !strings.Contains(below[:i], "/")) {
				seen[d] = true
				folders = append(folders, map[string]any{"type": "directory", "path": d})
			}
		}
		if r.URL.Query().Get("recursive") == "true" || !strings.Contains(below, "/") {
			files = append(files, h.describe(f))
		}
	}
	all := append(append([]any{}, folders...), files...)
	from, limit := 0, 1000
	fmt.Sscan(r.URL.Query().Get("cursor"), &from)
	fmt.Sscan(r.URL.Query().Get("limit"), &limit)
	if from+limit < len(all) {
		q := r.URL.Query()
		q.Set("cursor", fmt.Sprint(from+limit))
		// A link to somebody else must not be followed there.
		w.Header().Set("Link", fmt.Sprintf(`<https://evil.example.com%s?%s>; rel="next"`, r.URL.Path, q.Encode()))
		all = all[:from+limit]
	}
	json.NewEncoder(w).Encode(all[from:])
}

func (h *hub) content(w http.ResponseWriter, r *http.Request, escaped string) {
	key, err := url.PathUnescape(escaped)
	text, ok := h.files[key]
	if err != nil || !ok {
		h.refuse(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	e := h.describe(key)
	etag := e["oid"]
	if lfs, ok := e["lfs"].(map[string]any); ok {
		w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%s"`, lfs["oid"]))
	}
	if xet, ok := e["xetHash"]; ok {
		w.Header().Set("X-Xet-Hash", xet.(string))
		etag = "other"
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%s"`, etag))
	switch {
	case len(text) <= 100:
		if r.Header.Get("Accept-Encoding") != "identity" {
			h.t.Error("the Hub may compress its answer")
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	case !r.URL.Query().Has("again"): // within the Hub first
		w.Header().Set("Location", r.URL.EscapedPath()+"?again=1")
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		w.Header().Set("Location", h.elsewhere+"/blob?file="+url.QueryEscape(key))
		w.WriteHeader(http.StatusFound)
	}
}

func open(t *testing.T, endpoint, text string) *Bucket {
	t.Helper()
	at, err := storage.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	b, err := Open(at, Options{Endpoint: endpoint, Token: "hf_token", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestContract(t *testing.T) {
	for _, c := range []struct{ name, url string }{{"me/model", "hf://me/model@refs/pr/1"}, {"datasets/me/sets", "hf://datasets/me/sets@refs/pr/1"}, {"buckets/me/data", "hf://buckets/me/data"}} {
		t.Run(c.name, func(t *testing.T) {
			endpoint := ""
			storetest.RunReadOnly(t, func(t *testing.T, objects map[string]string) storage.Bucket {
				endpoint = serveHub(t, c.name, objects)
				return open(t, endpoint, c.url)
			}, func(t *testing.T) storage.Bucket { return open(t, endpoint, "hf://somebody/else") })
		})
	}
}

func TestErrorsAreTypes(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		code   string
		token  string
		check  func(error) bool
	}{
		{"gated", 403, "GatedRepo", "t", func(err error) bool {
			e, ok := errors.AsType[*storage.DeniedError](err)
			return ok && strings.Contains(e.Error(), "agree to its terms")
		}},
		{"private or missing, without a token", 401, "RepoNotFound", "", func(err error) bool {
			_, ok := errors.AsType[*storage.DeniedError](err)
			return ok
		}},
		{"a token that is none", 401, "", "t", func(err error) bool {
			_, ok := errors.AsType[*storage.CredentialsError](err)
			return ok && strings.Contains(err.Error(), "hf auth login")
		}},
		{"a missing revision", 404, "RevisionNotFound", "t", func(err error) bool {
			e, ok := errors.AsType[*storage.NotFoundError](err)
			return ok && e.Key == ""
		}},
		{"too fast", 429, "", "t", func(err error) bool {
			e, ok := errors.AsType[*storage.ThrottledError](err)
			return ok && e.After == 9*time.Second
		}},
		{"trouble", 502, "", "t", storage.Temporary},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Error-Code", c.code)
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(c.status)
		}))
		t.Cleanup(s.Close)
		b := open(t, s.URL, "hf://me/model")
		if b.token = c.token; c.token == "" {
			b.Authorize = nil
		}
		if _, err := b.Head(t.Context()); !c.check(err) {
			t.Errorf("%s: %T %v", c.name, err, err)
		}
	}
}

// Where content is kept, an address that has run out is asked for again.
func TestContentThatMoves(t *testing.T) {
	for _, c := range []struct {
		name      string
		location  string
		temporary bool
	}{
		{"in a circle", "/me/model/resolve/main/k", true},
		{"to an address that has run out", "ELSEWHERE/expired", true},
		{"nowhere", "", true},
		{"unencrypted", "ftp://127.0.0.1/x", true},
	} {
		keeper := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }))
		t.Cleanup(keeper.Close)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.location != "" {
				w.Header().Set("Location", strings.Replace(c.location, "ELSEWHERE", keeper.URL, 1))
			}
			w.WriteHeader(http.StatusFound)
		}))
		t.Cleanup(s.Close)
		_, err := open(t, s.URL, "hf://me/model").Get(t.Context(), "k", storage.GetOptions{})
		if err == nil || storage.Temporary(err) != c.temporary {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestWhereTheTokenIsFound(t *testing.T) {
	home := t.TempDir()
	for _, v := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	write := func(file, text string) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, want string) {
		t.Helper()
		if got := findToken(); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("none", "")
	write(filepath.Join(home, ".cache", "huggingface", "token"), "hf_file\n")
	want("file", "hf_file")
	t.Setenv("HF_HOME", filepath.Join(home, "other"))
	write(filepath.Join(home, "other", "token"), "hf_other")
	want("HF_HOME", "hf_other")
	t.Setenv("HF_TOKEN", " hf_env ")
	want("HF_TOKEN", "hf_env")
	b, err := Open(storage.Location{Store: storage.HF, Bucket: "me/model"}, Options{})
	if err != nil || b.token != "hf_env" || b.Endpoint != "https://huggingface.co" {
		t.Errorf("%+v, %v", b, err)
	}
}
