package nodestorage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// served is a store in memory with a few objects, reached by an access key.
func served(t *testing.T, wrap func(http.Handler) http.Handler) (*memory.Store, storage.Grant) {
	t.Helper()
	s := &memory.Store{}
	b := s.Bucket("data")
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"set/a", "set/b/c", "one", "both", "both/in"} {
		if _, err := b.Put(t.Context(), key, strings.NewReader(key), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h := s.ServeS3("ID")
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	g := storage.GrantTo(storage.Location{Store: storage.S3, Bucket: "data", Region: "us-east-1"}, srv.URL)
	g.AccessKey, g.SecretKey = "ID", "hush-hush"
	return s, g
}

// run is sky-mount copy, whose starter stays there until it ends.
func run(t *testing.T, home string, spec CopySpec, more ...any) (events []Event, code int) {
	t.Helper()
	in, w := io.Pipe()
	go func() {
		enc := json.NewEncoder(w)
		for _, v := range append([]any{spec}, more...) {
			_ = enc.Encode(v)
		}
	}()
	var out bytes.Buffer
	code = copyMain(t.Context(), in, &out, home)
	in.Close()
	for dec := json.NewDecoder(&out); ; {
		var e Event
		if err := dec.Decode(&e); err != nil {
			return events, code
		}
		if e.Mark != Progress {
			events = append(events, e)
		}
	}
}

func TestCopy(t *testing.T) {
	_, g := served(t, nil)
	home := t.TempDir()
	events, code := run(t, home, CopySpec{Grants: []storage.Grant{g}, Copies: []Copy{
		{Key: "set", Dst: "~/set"}, {Key: "one", Dst: "deep/one"}, {Key: "both", Dst: filepath.Join(home, "both")}, {Key: "set/b", Dst: "~/b", Folder: true},
	}})
	if code != 0 || len(events) != 4 {
		t.Fatalf("exit %d, %+v", code, events)
	}
	for path, want := range map[string]string{"set/a": "set/a", "set/b/c": "set/b/c", "deep/one": "one", "both/in": "both/in", "b/c": "set/b/c"} {
		if got, err := os.ReadFile(filepath.Join(home, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if !events[0].Folder || events[1].Folder || events[0].Files != 2 || len(events[2].Notes) != 1 || !strings.Contains(events[2].Notes[0], "a folder and an object") {
		t.Errorf("%+v", events)
	}
	events, _ = run(t, home, CopySpec{Grants: []storage.Grant{g}, Copies: []Copy{{Key: "set", Dst: "~/set"}}})
	if len(events) != 1 || events[0].Files != 0 || events[0].Same != 2 {
		t.Errorf("the second time: %+v", events)
	}
}

func TestFaults(t *testing.T) {
	_, g := served(t, nil)
	stranger := g
	stranger.AccessKey = "OTHER"
	for name, c := range map[string]struct {
		grant storage.Grant
		copy  Copy
		want  Fault
	}{
		"no such key":             {g, Copy{Key: "none", Dst: "~/x"}, FaultMissing},
		"no such folder":          {g, Copy{Grant: 3, Dst: "~/x"}, FaultOther},
		"keys that are not taken": {stranger, Copy{Key: "set", Dst: "~/x"}, FaultCredentials},
		"another's home":          {g, Copy{Key: "set", Dst: "~ann/x"}, FaultOther},
		"out of the home":         {g, Copy{Key: "set", Dst: "../x"}, FaultOther},
		"a file in the way":       {g, Copy{Key: "set", Dst: "~/file/x"}, FaultOther},
	} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		events, code := run(t, home, CopySpec{Grants: []storage.Grant{c.grant}, Copies: []Copy{c.copy}})
		if code == 0 || len(events) != 1 || events[0].Mark != Failed || events[0].Fault != c.want || events[0].Error == "" {
			t.Errorf("%s: exit %d, %+v", name, code, events)
		}
		if strings.Contains(fmt.Sprint(events), "hush-hush") {
			t.Errorf("%s: the secret is in the output: %v", name, events)
		}
	}
}

// Without its starter the program ends.
func TestTheEndOfTheInputEndsIt(t *testing.T) {
	stuck := make(chan struct{})
	_, g := served(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck })
	})
	defer close(stuck)
	spec, err := json.Marshal(CopySpec{Grants: []storage.Grant{g}, Copies: []Copy{{Key: "set", Dst: "~/x"}}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := copyMain(t.Context(), bytes.NewReader(spec), &out, t.TempDir()); code == 0 || !strings.Contains(out.String(), errNoInput.Error()) {
		t.Errorf("exit %d: %s", code, out.String())
	}
}
