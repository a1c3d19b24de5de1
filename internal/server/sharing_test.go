package server

import (
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// twoServers share a database and have home folders of their own.
func twoServers(t *testing.T, l UploadLimits) (a, b *testEnv) {
	var db *state.Store
	shared := func(d *Deps) {
		if db == nil {
			db = d.Store.AsShared()
		}
		d.Store = db
		d.Uploads = &Uploads{Home: d.Home, Store: db, Limits: l}
	}
	return newTestEnv(t, shared), newTestEnv(t, shared)
}

// inDatabase are the files that servers share.
func (env *testEnv) inDatabase() []string {
	env.t.Helper()
	list, err := env.store.Blobs().List(env.t.Context(), "")
	if err != nil {
		env.t.Fatal(err)
	}
	names := []string{}
	for _, b := range list {
		names = append(names, b.Name)
	}
	return names
}

const completed = `{"status":"completed","missing_chunks":null}`

func TestChunksReachAnyOfTheServersThatShareADatabase(t *testing.T) {
	t.Parallel()
	a, b := twoServers(t, UploadLimits{})
	data := zipOf(t, zipEntry{"wd/a.py", "print()", 0}, zipEntry{"wd/run.sh", "#!", 0o755})
	third := len(data) / 3
	parts := [][]byte{data[:third], data[third : 2*third], data[2*third:]}
	exists := func(env *testEnv, want string) {
		t.Helper()
		if r := env.call(get, "/upload_v2/blob?user_hash=ab12&blob_id="+testBlob, ""); r.body != `{"exists":`+want+`}` {
			t.Errorf("exists: %s, want %s", r.body, want)
		}
	}
	for _, c := range []struct {
		at   *testEnv
		i    int
		want string
	}{
		{a, 0, `{"status":"uploading","missing_chunks":["part1","part2"]}`},
		{b, 2, `{"status":"uploading","missing_chunks":["part1"]}`},
		{b, 1, completed},
		{a, 1, completed}, // a client that repeats it
	} {
		exists(a, map[bool]string{true: "true", false: "false"}[c.at == a && c.i == 1])
		if r := c.at.chunk(c.i, 3, parts[c.i]); r.body != c.want {
			t.Errorf("chunk %d: %d %s, want %s", c.i, r.status, r.body, c.want)
		}
	}
	exists(a, "true")
	exists(b, "true")
	if content, err := os.ReadFile(b.blobPath("wd/a.py")); string(content) != "print()" {
		t.Errorf("where the last chunk came: %q %v", content, err)
	}
	// A request may run on the other server.
	for range 2 {
		have, err := a.server.Uploads.Files(t.Context(), "ab12", state.RequestFiles{Upload: testBlob})
		if err == nil {
			_, err = have.Source(&task.Task{FileMountsMapping: map[string]string{"/wd": "wd"}}, "/wd")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if content, err := os.ReadFile(a.blobPath("wd/a.py")); string(content) != "print()" {
		t.Errorf("where the request runs: %q %v", content, err)
	}
	for _, env := range []*testEnv{a, b} {
		if found, _ := filepath.Glob(filepath.Join(env.home, BlobDir("*", "*"))); len(found) != 1 {
			t.Errorf("left over: %v", found)
		}
	}
	if _, err := a.server.Uploads.Files(t.Context(), "cd34", state.RequestFiles{Upload: testBlob}); !errors.Is(err, errUploadGone) {
		t.Errorf("another user's: %v", err)
	}
}

func TestARefusedUploadLeavesNothingOnAnyServer(t *testing.T) {
	t.Parallel()
	good := zipOf(t, zipEntry{"a", strings.Repeat("abcdefgh", 50), 0})
	for _, c := range []struct {
		name   string
		limits UploadLimits
		last   []byte
		want   int
	}{
		{"no archive", UploadLimits{}, []byte("no zip"), http.StatusBadRequest},
		{"too many entries", UploadLimits{Entries: 1}, zipOf(t, zipEntry{"a", "", 0}, zipEntry{"b", "", 0}), http.StatusRequestEntityTooLarge},
	} {
		a, b := twoServers(t, c.limits)
		if r := a.chunk(0, 2, c.last[:3]); !strings.Contains(r.body, "part1") {
			t.Fatalf("%s: %d %s", c.name, r.status, r.body)
		}
		if r := b.chunk(1, 2, c.last[3:]); r.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, r.status, r.body, c.want)
		}
		if names := a.inDatabase(); len(names) > 0 || b.left() != "" {
			t.Errorf("%s: left: %v %s", c.name, names, b.left())
		}
		if r := b.chunk(0, 1, good); r.body != completed {
			t.Errorf("%s: a good upload after it: %d %s", c.name, r.status, r.body)
		}
	}
}

// What is in the database counts, whichever server it came through. A limit that is
// met, but not passed, refuses nothing.
func TestServersThatShareADatabaseShareTheLimitsOfUploads(t *testing.T) {
	t.Parallel()
	data := zipOf(t, zipEntry{"a", "some text", 0})
	a, b := twoServers(t, UploadLimits{})
	if r := a.chunk(0, 1, data); r.body != completed {
		t.Fatalf("%d %s", r.status, r.body)
	}
	used, err := a.store.Blobs().UsedBy(t.Context(), "ab12")
	if err != nil || used < int64(len(data)) {
		t.Fatal(used, err)
	}
	for i, c := range []struct {
		name   string
		limits func(used int64) UploadLimits
		user   string
		want   int
	}{
		{"of a user, met", func(n int64) UploadLimits { return UploadLimits{User: n} }, "ab12", 200},
		{"of a user, passed", func(n int64) UploadLimits { return UploadLimits{User: n - 1} }, "ab12", http.StatusRequestEntityTooLarge},
		{"of another user", func(n int64) UploadLimits { return UploadLimits{User: n - 1} }, "cd34", 200},
		{"of all users, met", func(n int64) UploadLimits { return UploadLimits{All: n} }, "cd34", 200},
		{"of all users, passed", func(n int64) UploadLimits { return UploadLimits{All: n - 1} }, "cd34", http.StatusInsufficientStorage},
	} {
		b.server.Uploads.Limits = c.limits(used)
		other := strings.Repeat(string(rune('a'+i)), 64)
		// One chunk of two: it is not unpacked, so that only the database counts.
		r := b.call(post, "/upload_v2?user_hash="+c.user+"&upload_id="+other+"&chunk_index=0&total_chunks=2", "x", "Content-Type", "application/octet-stream")
		if r.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, r.status, r.body, c.want)
		}
		if kept := strings.Contains(strings.Join(a.inDatabase(), " "), other); kept != (c.want == 200) {
			t.Errorf("%s: in the database: %v", c.name, a.inDatabase())
		}
		if err := b.server.Uploads.discard(t.Context(), c.user, other); err != nil {
			t.Fatal(err)
		}
		if r := b.chunk(0, 1, data); r.body != completed {
			t.Errorf("%s: an upload that is there is refused: %d %s", c.name, r.status, r.body)
		}
	}
}

// onShared is a store that servers share, in virtual time.
func onShared(t *testing.T, f func(t *testing.T, db *state.Store)) {
	synctest.Test(t, func(t *testing.T) {
		db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "shared.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		f(t, db.AsShared())
	})
}

func TestSharedUploadsGoWhenNothingNeedsThem(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, db *state.Store) {
		u := &Uploads{Home: t.TempDir(), Store: db}
		needed, unneeded, used := testBlob, strings.Repeat("e", 64), strings.Repeat("f", 64)
		for _, blob := range []string{needed, unneeded, used} {
			p := u.at("ab12", blob, 1)
			err := p.receive(0, -1, strings.NewReader(string(zipOf(t, zipEntry{"a", blob, 0}))))
			err = errors.Join(err, u.share(t.Context(), "ab12", blob, p, 0), u.complete(t.Context(), "ab12", blob, 1))
			if err != nil {
				t.Fatal(err)
			}
		}
		there := func() (found []string) {
			for _, blob := range []string{needed, unneeded, used} {
				if names, err := u.files().Names(t.Context(), shared("ab12", blob)); err != nil {
					t.Fatal(err)
				} else if len(names) == 2 {
					found = append(found, blob)
				}
			}
			return found
		}
		keep := map[string]bool{u.dir("ab12", needed): true}
		time.Sleep(uploadKept - time.Minute)
		if err := u.sweep(t.Context(), keep); err != nil || len(there()) != 3 {
			t.Errorf("before their time: %v %v", there(), err)
		}
		if ok, err := u.exists(t.Context(), "ab12", used); !ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(2 * time.Minute)
		if err := u.sweep(t.Context(), keep); err != nil {
			t.Error(err)
		}
		if names, err := u.files().Names(t.Context(), sharedUploads); err != nil ||
			!slices.Equal(slices.Sorted(maps.Keys(names)), []string{"ab12/" + needed + "/part0", "ab12/" + needed + "/whole", "ab12/" + used + "/whole"}) {
			t.Errorf("afterwards: %v %v", names, err)
		}
	})
}

func TestGatheredLogsGoForGood(t *testing.T) {
	t.Parallel()
	onShared(t, func(t *testing.T, db *state.Store) {
		d := NewDownloads(t.TempDir(), db)
		if err := os.MkdirAll(d.Dir("ab12"), 0o700); err != nil {
			t.Fatal(err)
		}
		offered, err := d.Offer(t.Context(), "ab12", map[string]string{"1": filepath.Join(d.Dir("ab12"), "c", "1-train")})
		if want := "~/" + LogsDir("ab12") + "/c/1-train"; err != nil || offered["1"] != want {
			t.Fatal(offered, err)
		}
		other := NewDownloads(t.TempDir(), db)
		fetched := func() bool {
			t.Helper()
			if err := os.RemoveAll(other.Dir("ab12")); err != nil {
				t.Fatal(err)
			}
			if err := other.fetch(t.Context(), "ab12", "c/1-train"); err != nil {
				t.Fatal(err)
			}
			_, err := os.Stat(filepath.Join(other.Dir("ab12"), "c", "1-train"))
			return err == nil
		}
		time.Sleep(downloadKept - time.Minute)
		if err := d.sweep(t.Context(), time.Now()); err != nil || !fetched() {
			t.Errorf("logs are gone before their time (%v)", err)
		}
		time.Sleep(downloadKept + time.Minute)
		if err := d.sweep(t.Context(), time.Now()); err != nil || fetched() {
			t.Errorf("logs that were gathered long ago are there (%v)", err)
		}
	})
}

// On a server of its own nothing is in the database.
func TestAServerOfItsOwnKeepsUploadsInFolders(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	if r := env.chunk(0, 1, zipOf(t, zipEntry{"a", "", 0})); r.body != completed {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if names := env.inDatabase(); len(names) > 0 {
		t.Errorf("in the database: %v", names)
	}
	if err := env.server.Uploads.Fetch(t.Context(), "ab12", strings.Repeat("f", 64)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an upload that nobody made: %v", err)
	}
}
