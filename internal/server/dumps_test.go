package server

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

func TestWhatADumpIsAbout(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	now := env.store.Now()
	for i, r := range []state.Request{
		{ID: "aaaa0000", ClusterName: "one", CreatedAt: now.Add(-time.Minute)},
		{ID: "bbbb0000", ClusterName: "two", CreatedAt: now.Add(-time.Hour)},
		{ID: "bbbb1111", CreatedAt: now.Add(-time.Hour)},
		{ID: "cccc0000", ClusterName: "one", CreatedAt: now.Add(-time.Hour)},
	} {
		r.Name, r.Status, r.Body = "sky.launch", api.RequestSucceeded, []byte(`{}`)
		r.FinishedAt = r.CreatedAt
		if i == 0 {
			r.Status, r.Error = api.RequestFailed, []byte(`{"type":"ValueError","message":"why"}`)
		}
		if err := env.store.Requests().Create(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range map[string]time.Time{"one": now.Add(-time.Minute), "two": now.Add(-time.Hour), "three": now.Add(-time.Hour)} {
		c := &state.Cluster{Name: name, Hash: name + "-hash", NameOnCloud: name, Status: api.ClusterUp, NumNodes: 1, StatusUpdatedAt: at}
		if err := env.store.Clusters().Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := env.store.Attempts().Begin(t.Context(), state.Attempt{Token: "try-" + name, ClusterName: name, ClusterHash: name + "-hash", StartedAt: at}); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[int]int{}
	for i, at := range []time.Time{now.Add(-time.Minute), now.Add(-time.Hour)} {
		j, err := env.store.ManagedJobs().Submit(t.Context(), &state.ManagedJob{RequestID: fmt.Sprint("q", i), Name: fmt.Sprint("job", i), SubmittedAt: at,
			Dag: []byte("name: x\n---\nrun: x\n"), Tasks: []*state.ManagedTask{{Name: "t", Status: api.ManagedPending}, {Name: "u", Index: 1, Status: api.ManagedPending}}})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = j.ID
	}
	minutes := func(n float64) *float64 { return &n }
	for _, c := range []struct {
		name  string
		about api.DebugDumpBody
		want  string // what of all this it tells
	}{
		{"everything", api.DebugDumpBody{}, "aaaa0000 bbbb0000 bbbb1111 cccc0000 job0 job1 one three try-one try-three try-two two"},
		{"a cluster", api.DebugDumpBody{ClusterNames: []string{"two"}}, "bbbb0000 try-two two"},
		{"a request and its cluster", api.DebugDumpBody{RequestIDs: []string{"aaaa"}}, "aaaa0000 cccc0000 one try-one"},
		{"an older request and its cluster", api.DebugDumpBody{RequestIDs: []string{"cccc"}}, "aaaa0000 cccc0000 one try-one"},
		{"requests by their beginning", api.DebugDumpBody{RequestIDs: []string{"bbbb"}}, "bbbb0000 bbbb1111 try-two two"},
		{"a request without a cluster", api.DebugDumpBody{RequestIDs: []string{"bbbb1"}}, "bbbb1111"},
		{"a request that has no id", api.DebugDumpBody{RequestIDs: []string{""}}, ""},
		{"a job", api.DebugDumpBody{ManagedJobIDs: []int{ids[1]}}, "job1"},
		{"the last minutes", api.DebugDumpBody{RecentMinutes: minutes(10)}, "aaaa0000 job0 one try-one"},
		{"the last minutes and a cluster", api.DebugDumpBody{RecentMinutes: minutes(10), ClusterNames: []string{"two"}}, "aaaa0000 bbbb0000 job0 one try-one try-two two"},
		{"no minutes", api.DebugDumpBody{RecentMinutes: minutes(0)}, ""},
	} {
		a := &memoryArchive{}
		if err := env.server.writeDump(t.Context(), c.about, a); err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{}
		for part, names := range map[string]string{"requests.json": "aaaa0000 bbbb0000 bbbb1111 cccc0000", "clusters.json": "one two three",
			"attempts.json": "try-one try-two try-three", "managed_jobs.json": "job0 job1"} {
			for _, name := range strings.Fields(names) {
				if strings.Contains(a.files[part], `"`+name+`"`) {
					told[name] = true
				}
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(told)), " "); got != c.want {
			t.Errorf("about %s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if strings.Contains(c.want, "aaaa") && !strings.Contains(a.files["requests.json"], `"why"`) {
			t.Errorf("why it failed is not told: %s", a.files["requests.json"])
		}
		if problems := a.files["problems.txt"]; strings.Count(problems, "\n") != 1 || !strings.HasPrefix(problems, "server.log: ") {
			t.Errorf("about %s: problems: %s", c.name, problems)
		}
	}
	env.file(serverLog, "line\n")
	a := &memoryArchive{}
	if err := env.server.writeDump(t.Context(), api.DebugDumpBody{}, a); err != nil {
		t.Fatal(err)
	}
	if problems, there := a.files["problems.txt"]; there {
		t.Errorf("problems where there are none: %q", problems)
	}
}

func TestADumpHasTheEndOfTheServersLog(t *testing.T) {
	t.Parallel()
	env := &testEnv{t: t, home: t.TempDir()}
	s := &Server{Deps: Deps{Home: env.home}}
	if text, err := s.logTail(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a log: %q %v", text, err)
	}
	line := strings.Repeat("x", 99) + "\n"
	for _, c := range []struct {
		name, log, want string
	}{
		{"a short one", "first\nlast\n", "first\nlast\n"},
		{"as much as is told", "12345678\n" + strings.Repeat("x", dumpLog-9), "12345678\n" + strings.Repeat("x", dumpLog-9)},
		{"a byte more", "12345678\n" + strings.Repeat("x", dumpLog-8), strings.Repeat("x", dumpLog-8)},
		{"a long one", strings.Repeat(line, dumpLog/100+10), strings.Repeat(line, dumpLog/100)},
	} {
		env.file(serverLog, c.log)
		if text, err := s.logTail(); string(text) != c.want || err != nil {
			t.Errorf("%s: %d bytes, want %d (%v)", c.name, len(text), len(c.want), err)
		}
	}
}

func TestWhatIsTakenForASecret(t *testing.T) {
	t.Parallel()
	const hidden = config.Redacted
	for _, c := range []struct {
		name string
		know []string // values that are secrets
		from string   // a text whose secrets are learned
		text string
		want string
	}{
		{"a value", []string{"hush-hush"}, "", "say hush-hush twice: hush-hush", "say " + hidden + " twice: " + hidden},
		{"a value of four letters", []string{"hush"}, "", "hush", hidden},
		{"a value that is too short", []string{"abc"}, "", "abc abcd", "abc abcd"},
		{"the longest first", []string{"hush", "hush-hush"}, "", "hush-hush hush", hidden + " " + hidden},
		{"lines of a value", []string{"first line\n second line \n\n"}, "", "second line, first line", hidden + ", " + hidden},
		{"as a text of JSON", []string{`a"b\c`}, "", `{"x":"a\"b\\c"}`, `{"x":"` + hidden + `"}`},
		{"within a text of JSON in JSON", []string{`a"b\c`}, "", `a\\\"b\\\\c`, hidden},
		{"in an address", []string{"a b/c&d"}, "", "a+b%2Fc%26d a%20b%2Fc&d", hidden + " " + hidden},
		{"the password of an address", []string{"postgres://u:pass-word@h/d"}, "", "failed for pass-word", "failed for " + hidden},
		{"a key of a text", nil, "secrets:\n  a: value-one\nenvs:\n  B: value-two\n", "value-one value-two", hidden + " value-two"},
		{"a list below it", nil, `{"tokens":["value-one",{"x":"value-two"}],"names":["value-three"]}`, "value-one value-two value-three", hidden + " " + hidden + " value-three"},
		{"a text in a text", nil, `{"task":"run: x\nsecrets:\n  a: value-one\n"}`, "value-one", hidden},
		{"a text of several documents", nil, "name: x\n---\nsecrets:\n  a: value-one\n", "value-one", hidden},
		{"no text of keys", nil, "just: [", "just: [", "just: ["},
		{"what is told of a name", nil, "", "name=value password=value1 x", "name=value password=" + hidden + " x"},
	} {
		r := &redactor{}
		r.learn(c.know...)
		if c.from != "" {
			r.learnFrom([]byte(c.from))
		}
		r.ready()
		if got := r.text(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	r := &redactor{}
	r.learn("hush-hush")
	r.ready()
	got, err := r.json(map[string]any{"hush-hush": []any{"<hush-hush>", 1, nil, map[string]any{"a": "b & hush-hush"}}})
	if want := "{\n  \"" + hidden + "\": [\n    \"<" + hidden + ">\",\n    1,\n    null,\n    {\n      \"a\": \"b & " + hidden + "\"\n    }\n  ]\n}\n"; err != nil || string(got) != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	if got, err := r.json(func() {}); err == nil {
		t.Errorf("%s", got)
	}
}

func TestMetricsOfSweepsAndClouds(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	if r := env.call(get, "/metrics", ""); strings.Contains(r.body, "sky_stray") || strings.Contains(r.body, "sky_sweep") {
		t.Errorf("before the first sweep: %s", r.body)
	}
	env.server.Metrics.CloudCalled("aws", "run", "ok", 2*time.Second)
	for range 3 {
		env.server.Metrics.CloudRefused("azure", "launch", "SomethingNew")
	}
	env.server.Metrics.Swept(time.UnixMilli(100_500), map[string]int{"aws": 2, "gcp": 1}, 3)
	env.server.Metrics.Swept(time.UnixMilli(200_500), map[string]int{"aws": 1}, 4)
	at := time.Unix(100, 0)
	env.server.Metrics.RequestEnded(&state.Request{Name: "sky.odd", Status: api.RequestFailed, CreatedAt: at, StartedAt: at.Add(-time.Second), FinishedAt: at.Add(-2 * time.Second)})
	c := &state.Cluster{Name: "c", Hash: "h", NameOnCloud: "c", Status: api.ClusterUp, NumNodes: 3}
	if err := env.store.Clusters().Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	env.ownCluster("d", "uma")
	r := env.call(get, "/metrics", "")
	for _, line := range []string{
		"sky_sweep_last_timestamp_seconds 200.5", `sky_stray_machines{cloud="aws"} 1`, "sky_stray_machines_ended 7",
		`sky_cloud_call_duration_seconds_sum{cloud="aws",call="run",outcome="ok"} 2`,
		`sky_cloud_unknown_refusals_total{cloud="azure",call="launch",code="SomethingNew"} 3`,
		`sky_request_wait_seconds_sum{name="sky.odd"} 0`, `sky_request_duration_seconds_sum{name="sky.odd",status="FAILED"} 0`,
		`sky_clusters{status="UP"} 2`, `sky_cluster_nodes{status="UP"} 4`, `sky_build_info{version="` + api.ProductVersion + `",build="build"} 1`,
	} {
		if !strings.Contains(r.body, "\n"+line+"\n") && !strings.HasPrefix(r.body, line+"\n") {
			t.Errorf("no line %s in\n%s", line, r.body)
		}
	}
	for _, name := range []string{"process_start_time_seconds", "go_goroutines", "go_memstats_heap_alloc_bytes", `sky_requests{state="running"}`, `sky_requests{state="slots"}`} {
		if !strings.Contains(r.body, "\n"+name+" ") {
			t.Errorf("no %s", name)
		}
	}
	if strings.Contains(r.body, `cloud="gcp"`) {
		t.Error("a machine of an earlier sweep is told")
	}
}

func TestLegacyUploadsTakeThePlaceOfWhatIsThere(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	dir := filepath.Join(env.home, LegacyUploadDir("ab12"))
	outside := filepath.Join(env.home, "outside")
	n := 0
	send := func(entries ...zipEntry) reply {
		n++
		path := fmt.Sprintf("/upload?user_hash=ab12&upload_id=sky-2026-01-02-03-04-05-678901-%08d", n)
		return env.call(post, path, string(zipOf(t, entries...)), "Content-Type", "application/octet-stream")
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "full", "sub"), 0o700), os.MkdirAll(outside, 0o700), os.Symlink(outside, filepath.Join(dir, "out")),
		os.WriteFile(filepath.Join(dir, "file"), []byte("old"), 0o600), os.Mkdir(filepath.Join(dir, "empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		entries []zipEntry
		want    int
	}{
		{"a file in place of a file", []zipEntry{{"file", "new", 0}}, 200},
		{"a file in place of an empty folder", []zipEntry{{"empty", "new", 0}}, 200},
		{"a file in place of a full folder", []zipEntry{{"full", "new", 0}}, 400},
		{"a folder in place of a file", []zipEntry{{"file/x", "new", 0}}, 400},
		{"a file beside others", []zipEntry{{"full/sub/x", "new", 0}}, 200},
		{"a file through a link that leads out", []zipEntry{{"out/x", "new", 0}}, 400},
		{"a link to other files of the user", []zipEntry{{"near", "..", fs.ModeSymlink | 0o777}}, 200},
		{"a file through it", []zipEntry{{"near/planted", "new", 0}}, 400},
		{"a folder in its place", []zipEntry{{"near/", "", fs.ModeDir | 0o777}}, 400},
	} {
		if r := send(c.entries...); r.status != c.want {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
	}
	for name, want := range map[string]string{"file": "new", "empty": "new", "full/sub/x": "new"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(env.home, clientsDir, "ab12", "planted")); len(found) > 0 {
		t.Errorf("beside the upload: %v", found)
	}
	if found, _ := os.ReadDir(outside); len(found) > 0 {
		t.Errorf("outside: %v", found)
	}
	if found, _ := filepath.Glob(filepath.Join(env.home, clientsDir, "ab12", "uploads", unpackingPrefix+"*")); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
	// What was replaced does not count any more.
	limits := UploadLimits{User: sizeOf(dir) + sizeOf(filepath.Join(env.home, clientsDir, "ab12", "uploads")) + 1, KeepFree: 1}
	if err := env.server.Uploads.ledger().take("ab12", 1, limits.filled()); err != nil {
		t.Error(err)
	}
}

func TestAnUploadThatIsAskedForIsInUse(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	if r := env.chunk(0, 1, zipOf(t, zipEntry{"a", "", 0})); r.body != completed {
		t.Fatal(r.body)
	}
	old := time.Now().Add(-2 * uploadKept)
	if err := os.Chtimes(env.blobPath(""), old, old); err != nil {
		t.Fatal(err)
	}
	env.call(get, "/upload_v2/blob?user_hash=ab12&blob_id="+testBlob, "")
	if err := env.server.collectUploads(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(env.blobPath("a")); err != nil {
		t.Errorf("it was collected: %v", err)
	}
	// What was collected does not count any more.
	limits := UploadLimits{User: 1, KeepFree: 1}
	env.file(BlobDir("ab12", strings.Repeat("f", 64))+"/x", "12")
	env.server.Uploads.ledger().Recount()
	if err := env.server.Uploads.ledger().take("ab12", 1, limits); err == nil {
		t.Error("uploads that are there do not count")
	}
	if err := env.server.collectUploads(t.Context(), time.Now().Add(2*uploadKept)); err != nil {
		t.Fatal(err)
	}
	if err := env.server.Uploads.ledger().take("ab12", 1, limits); err != nil {
		t.Errorf("uploads that are gone count: %v", err)
	}
	for query, want := range map[string]int{"user_hash=../x&blob_id=" + testBlob: 400, "user_hash=ab12&blob_id=x": 400, "blob_id=" + testBlob: 400} {
		if r := env.call(get, "/upload_v2/blob?"+query, ""); r.status != want {
			t.Errorf("%s: %d %s", query, r.status, r.body)
		}
	}
}

func TestPartsOfAnUploadThatAreNotThere(t *testing.T) {
	t.Parallel()
	u := unpacking{up: &Uploads{Home: t.TempDir()}, user: "ab12", dir: filepath.Join(t.TempDir(), "x"), total: 2}
	if err := u.receive(0, 3, strings.NewReader("abc")); err != nil {
		t.Fatal(err)
	}
	if missing, err := u.missing(); err != nil || !slices.Equal(missing, []string{"part1"}) {
		t.Errorf("%v %v", missing, err)
	}
	if r, err := u.open(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v %v", r, err)
	}
	if err := u.finish(); err == nil {
		t.Error("it was finished")
	}
	if err := u.receive(1, 2, strings.NewReader("de")); err != nil {
		t.Fatal(err)
	}
	r, err := u.open()
	if err != nil || r.size != 5 {
		t.Fatal(r, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n, err := r.ReadAt(make([]byte, 5), 0); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("of closed files %d bytes are read, %v", n, err)
	}
	if err := r.Close(); err == nil {
		t.Error("closed twice")
	}
	// Another sender has finished meanwhile.
	if err := errors.Join(os.RemoveAll(u.parts()), os.Mkdir(u.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if missing, err := u.missing(); err != nil || missing != nil {
		t.Errorf("%v %v", missing, err)
	}
	if err := os.WriteFile(u.parts(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if missing, err := u.missing(); err == nil {
		t.Errorf("below what is no folder %v are missing", missing)
	}
}

// A chunk that comes twice counts once, and one that is refused not at all.
func TestChunksCountOnce(t *testing.T) {
	t.Parallel()
	up := &Uploads{Home: t.TempDir(), Limits: UploadLimits{User: 10, One: 8, KeepFree: 1}}
	u := up.at("ab12", testBlob, 3)
	used := func() int64 { return up.ledger().Used("ab12") }
	for _, c := range []struct {
		name  string
		index int
		size  int64
		text  string
		good  bool
		used  int64
	}{
		{"a chunk", 0, 4, "abcd", true, 4},
		{"the same again", 0, 4, "abcd", true, 4},
		{"it again, shorter", 0, -1, "abc", true, 3},
		{"as much as one upload may have", 1, 5, "12345", true, 8},
		{"a byte more", 2, -1, "1", false, 0},
		{"a chunk that says that it is too large", 0, 11, "a", false, 0},
		{"as much as is said", 0, 8, "12345678", true, 8},
	} {
		if err := u.receive(c.index, c.size, strings.NewReader(c.text)); (err == nil) != c.good || used() != c.used {
			t.Errorf("%s: %v, %d bytes are used, want %d", c.name, err, used(), c.used)
		}
		if there := sizeOf(u.parts()); there != c.used {
			t.Errorf("%s: %d bytes are there, want %d", c.name, there, c.used)
		}
	}
}
