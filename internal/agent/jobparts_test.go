//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/notify"
)

// A failed job's log ends with what failed, where, and why.
func TestTheLastLineOfALog(t *testing.T) {
	for _, tt := range []struct {
		job  agentapi.Job
		want string
	}{
		{agentapi.Job{ID: 3, Status: api.JobFailed, ExitCodes: []int{0, 7}}, "ERROR: Job 3 failed. Return codes by rank: [0, 7]"},
		{agentapi.Job{ID: 3, Status: api.JobFailedSetup, ExitCodes: []int{2}, Reason: "no"}, "ERROR: Setup of job 3 failed. Return codes by rank: [2]\nReason: no"},
		{agentapi.Job{ID: 3, Status: api.JobFailed, ExitCodes: []int{139}}, "ERROR: Job 3 failed. Return codes by rank: [139]\nCode 139 means"},
		{agentapi.Job{ID: 3, Status: api.JobFailed, ExitCodes: []int{137}}, "ERROR: Job 3 failed. Return codes by rank: [137]\nCode 137 means that a process was killed from outside (SIGKILL), most often because the machine or container was out of memory"},
		{agentapi.Job{ID: 3, Status: api.JobFailed, ExitCodes: []int{137, 7}, EndedRanks: []int{0}, Reason: "rank 1"}, "ERROR: Job 3 failed. Return codes by rank: [137, 7]\nReason: rank 1"},
		{agentapi.Job{ID: 3, Status: api.JobFailedDriver, Reason: "restarted"}, "ERROR: Job 3 could not be brought to its end.\nReason: restarted"},
		{agentapi.Job{ID: 3, Status: api.JobSucceeded, Reason: "x"}, ""},
		{agentapi.Job{ID: 3, Status: api.JobCancelled, Reason: "x"}, ""},
	} {
		got := conclusion(&tt.job)
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || strings.Contains(got, "139 means") != slices.Contains(tt.job.ExitCodes, 139) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// What a rank prints is found by where it runs, and begins with whose it is.
func TestRanksHaveNamesOfTheirOwn(t *testing.T) {
	head, worker := place{Node: "a", Index: 0, IP: "10.0.0.1"}, place{Node: "b", Index: 2, IP: "10.0.0.2"}
	for _, tt := range []struct {
		name            string
		places          []place
		task            string
		phase           phase
		sources, begins []string
	}{
		{"one rank", []place{head}, "", phaseRun, []string{"tasks/run.log"}, []string{"(task, pid=7) "}},
		{"one rank of a named task", []place{head}, "train", phaseRun, []string{"tasks/run.log"}, []string{"(train, pid=7) "}},
		{"one rank elsewhere", []place{worker}, "train", phaseRun, []string{"tasks/run.log"}, []string{"(train, pid=7) "}},
		{"two ranks", []place{head, worker}, "train", phaseRun, []string{"tasks/0-head.log", "tasks/1-worker2.log"}, []string{"(head, rank=0, pid=7) ", "(worker2, rank=1, pid=7, ip=10.0.0.2) "}},
		{"setup", []place{head}, "", phaseSetup, []string{"tasks/setup.log"}, []string{"(setup pid=7) "}},
		{"setup of two", []place{head, worker}, "", phaseSetup, []string{"tasks/setup-head.log", "tasks/setup-worker2.log"}, []string{"(setup pid=7) ", "(setup pid=7, ip=10.0.0.2) "}},
	} {
		a := &Agent{spec: memberOf(0, 1)}
		d := &driver{a: a, j: &openJob{id: 5}, spec: &agentapi.JobSpec{TaskName: tt.task}, places: tt.places}
		for i, m := range d.members(tt.phase) {
			if m.source != tt.sources[i] || m.key != fmt.Sprintf("h-5-%s-%d", tt.phase, i) || m.rank != i {
				t.Errorf("%s: %+v", tt.name, m)
			}
			if got := d.prefix(m, tt.phase, 7); got != tt.begins[i] {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.begins[i])
			}
		}
	}
}

// The first reason is told, and all codes.
func TestWhyAGangFailed(t *testing.T) {
	ms := []member{{rank: 0}, {rank: 1, place: place{Index: 1}}, {rank: 2, place: place{Index: 2}}}
	got := verdictOf(ms, []rankStatus{{Code: 137}, {Code: 255, Reason: "lost"}, {Code: 1, Reason: "later"}})
	if !slices.Equal(got.codes, []int{137, 255, 1}) || got.ended != nil || got.reason != "rank 1 on worker1: lost" {
		t.Errorf("%+v", got)
	}
	if got := verdictOf(ms[:1], []rankStatus{{}}); !slices.Equal(got.codes, []int{0}) || got.reason != "" || got.failed() {
		t.Errorf("%+v", got)
	}
	ended := rankStatus{Code: 137, Ended: true}
	for _, tt := range []struct {
		statuses []rankStatus
		ended    []int
		reason   string
	}{
		{[]rankStatus{ended, {Code: 42}, ended}, []int{0, 2}, "rank 1 on worker1 failed with code 42; sky then ended all other ranks"},
		{[]rankStatus{{}, {Code: 42}, ended}, []int{2}, "rank 1 on worker1 failed with code 42; sky then ended rank 2"},
		{[]rankStatus{{Code: 3}, {Code: 42}, ended}, []int{2}, "rank 0 on head failed with code 3, rank 1 on worker1 failed with code 42; sky then ended rank 2"},
		{[]rankStatus{ended, {Code: 255, Reason: "lost"}, {}}, []int{0}, "rank 1 on worker1: lost; sky then ended rank 0"},
	} {
		if got := verdictOf(ms, tt.statuses); !slices.Equal(got.ended, tt.ended) || got.reason != tt.reason {
			t.Errorf("%v: %+v", tt.statuses, got)
		}
	}
	for state, over := range map[rankState]bool{rankAbsent: false, rankRunning: false, rankExited: true, rankLost: true} {
		if st := (rankStatus{State: state}); st.over() != over || anyOver([]rankStatus{{State: rankRunning}, st}) != over {
			t.Errorf("%s", state)
		}
	}
}

// What a node refuses as wrong stays wrong; anything else may be mended.
func TestWhichRefusalsOfANodePass(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{errNodeGone, false},
		{invalid("x"), false},
		{&agentapi.Error{Code: agentapi.CodeNotFound}, false},
		{stale(1, 2), true},
		{&agentapi.Error{Code: agentapi.CodeStopping}, true},
		{&agentclient.UnreachableError{Err: errors.New("x")}, true},
		{errors.New("x"), true},
	} {
		if got := temporary(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

func TestFoldersOfJobsAreNamedSafely(t *testing.T) {
	for name, want := range map[string]string{"train-1_a.b": "train-1_a.b", "a/b c": "a-b-c", "ü": "-", "": "", strings.Repeat("x", 101): strings.Repeat("x", 100), strings.Repeat("y", 100): strings.Repeat("y", 100), "azAZ09": "azAZ09", "{`@[/:": "------"} {
		if got := fileName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for hash, want := range map[string]string{"": "0", "abc": "abc", strings.Repeat("x", 41): strings.Repeat("x", 40)} {
		if got := (&Agent{spec: &agentapi.ClusterSpec{Hash: hash}}).keyPrefix(); got != want {
			t.Errorf("%q: %q, want %q", hash, got, want)
		}
	}
	if got := new(Agent).keyPrefix(); got != "0" {
		t.Errorf("without a cluster: %q", got)
	}
	dir := filepath.Join(t.TempDir(), "1-x")
	at := time.Date(2026, 11, 23, 1, 2, 3, 4000, time.UTC)
	if err := moveAside(dir, at); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), moveAside(dir, at)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + ".before-2026-11-23-01-02-03-000004"); err != nil {
		t.Error(err)
	}
}

// A job's environment is the agent's with its own on top, without what would make its
// processes pass for the agent, and what no process can have.
func TestAProcessHasAnEnvironmentOfItsOwn(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/x")
	t.Setenv("INVOCATION_ID", "x")
	t.Setenv("SKY_TEST_OF_AGENT", "agent's")
	t.Setenv("SKY_TEST_OF_BOTH", "agent's")
	env := environment("/home/ann", map[string]string{"SKY_TEST_OF_BOTH": "job's", "NUL": "a\x00b", "ONE": "a\x01b", "SKY_RANK": "another's"}, "key")
	if !slices.IsSorted(env) {
		t.Error("it has no order")
	}
	got := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		got[name] = value
	}
	for name, want := range map[string]string{"HOME": "/home/ann", "SKY_TEST_OF_AGENT": "agent's", "SKY_TEST_OF_BOTH": "job's", "ONE": "a\x01b", "SKY_RANK": "key", "PYTHONUNBUFFERED": "1"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "INVOCATION_ID", "NUL"} {
		if v, has := got[name]; has {
			t.Errorf("%s is %q", name, v)
		}
	}
}

func TestWhereAScriptStarts(t *testing.T) {
	home := t.TempDir()
	start := func(dir, want, says string) {
		t.Helper()
		got, err := workdir(home, dir)
		if says == "" && (err != nil || got != want) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %q, %v", dir, got, err)
		}
	}
	start("", home, "")
	if err := os.WriteFile(filepath.Join(home, "sky_workdir"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start("", home, "")
	start("sky_workdir", "", "is not a directory")
	if err := errors.Join(os.Remove(filepath.Join(home, "sky_workdir")), os.MkdirAll(filepath.Join(home, "sky_workdir", "a"), 0o700)); err != nil {
		t.Fatal(err)
	}
	start("", filepath.Join(home, "sky_workdir"), "")
	start("~", home, "")
	start("~/sky_workdir", filepath.Join(home, "sky_workdir"), "")
	start("sky_workdir/a", filepath.Join(home, "sky_workdir", "a"), "")
	start("/", "/", "")
	start("~ann", "", "~ann does not exist on this node")
	start("nowhere", "", "nowhere does not exist on this node")
}

// A rank is told how many devices it sees, and which; nodes that have some hide those
// of others.
func TestWhichDevicesARankSees(t *testing.T) {
	with := func(name string, n float64) map[string]float64 { return map[string]float64{name: n} }
	for _, tt := range []struct {
		name      string
		asked     map[string]float64
		has       map[string]float64
		gpus      []int
		own       string
		phase     phase
		count     string
		visible   string
		restricts bool
	}{
		{"none asked, none there", nil, nil, nil, "", phaseRun, "0", "", false},
		{"none asked, some there", nil, with("A100", 8), nil, "", phaseRun, "0", "", true},
		{"none asked, some there, setup", nil, with("A100", 8), nil, "", phaseSetup, "0", "", false},
		{"none asked, its own choice", nil, with("A100", 8), nil, "3", phaseRun, "0", "3", true},
		{"two", with("A100", 2), with("A100", 8), []int{1, 3}, "", phaseRun, "2", "1,3", true},
		{"two, setup", with("A100", 2), with("A100", 8), []int{1, 3}, "", phaseSetup, "2", "1,3", true},
		{"a half", with("A100", 0.5), with("A100", 8), []int{4}, "", phaseRun, "1", "4", true},
		{"one and a half", with("A100", 1.5), with("A100", 8), []int{4, 5}, "", phaseRun, "2", "4,5", true},
		{"a TPU", with("tpu-v4", 4), with("TPU-v4", 4), []int{0}, "", phaseRun, "0", "", false},
		{"none of it", with("A100", 0), with("A100", 0), nil, "", phaseRun, "0", "", false},
	} {
		c := memberOf(0, 1)
		c.Capacity.Accelerators = tt.has
		spec := &agentapi.JobSpec{Accelerators: tt.asked, Envs: map[string]string{}}
		if tt.own != "" {
			spec.Envs["CUDA_VISIBLE_DEVICES"] = tt.own
		}
		env := variables(c, &agentapi.Job{ID: 2, TaskID: "t"}, spec, []string{"a", "b"}, 1, tt.gpus, tt.phase)
		number := map[phase]string{phaseRun: "SKYPILOT_NUM_GPUS_PER_NODE", phaseSetup: "SKYPILOT_SETUP_NUM_GPUS_PER_NODE"}[tt.phase]
		visible, restricts := env["CUDA_VISIBLE_DEVICES"]
		if env[number] != tt.count || visible != tt.visible || restricts != tt.restricts {
			t.Errorf("%s: %q devices, %q (%v)", tt.name, env[number], visible, restricts)
		}
	}
}

// A damaged index is not believed.
func TestALineOfAnIndexThatIsDamagedIsRefused(t *testing.T) {
	for _, line := range []string{
		"", "X", `S tasks/a "p"`, `S "tasks/a`, `S "tasks/a" p`,
		"N", "N 0", `N 0 3 key`, `N 0 3 key "open`,
		"B", "B 0 1 0 0", "B 0 1 1 0 1 -", "B 0 1 -1 0 1 -", "B -1 1 0 0 1 -", "B 0 -1 0 0 1 -", "B 0 1 0 -1 1 -", "B 0 1 0 2 1 -", fmt.Sprintf("B 0 1 0 0 %d -", pieceSize+1),
	} {
		l := testLog(t)
		if err := l.declare(t.Context(), "tasks/first", "p"); err != nil {
			t.Fatal(err)
		}
		if err := l.replay(line); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}

// testLog is a log of a job that nobody merges.
func testLog(t *testing.T) *jobLog {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l, err := openJobLog(filepath.Join(dir, "1-x"), filepath.Join(dir, "index"), slog.New(slog.DiscardHandler), newWatcher(ctx), &notify.Broadcast{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// What could not be written is not taken for written: it is said or declared again.
func TestALogThatCannotBeWrittenForgetsNothing(t *testing.T) {
	l := testLog(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.index.Close()
	if err := l.declare(ctx, "tasks/a", "p"); !errors.Is(err, context.Canceled) || l.declared("tasks/a") {
		t.Errorf("declared: %v", err)
	}
	if err := l.say(ctx, "key", "text"); !errors.Is(err, context.Canceled) || l.notes["key"] || l.size != 0 {
		t.Errorf("said: %v", err)
	}
	l = testLog(t)
	l.out.Close()
	if err := l.say(ctx, "key", "text"); !errors.Is(err, context.Canceled) || l.size != 0 {
		t.Errorf("said: %v", err)
	}
	dir := t.TempDir()
	for name, index := range map[string]string{"no index": filepath.Join(dir, "nowhere", "index"), "a folder as index": dir} {
		if _, err := openJobLog(filepath.Join(dir, name), index, slog.New(slog.DiscardHandler), nil, &notify.Broadcast{}); err == nil {
			t.Errorf("%s: a log was opened", name)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "taken", "run.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{filepath.Join(dir, "taken"), filepath.Join(dir, "file", "x")} {
		_ = os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
		if _, err := openJobLog(at, filepath.Join(dir, "index"), slog.New(slog.DiscardHandler), nil, &notify.Broadcast{}); err == nil {
			t.Errorf("%s: a log was opened", at)
		}
	}
}

// Each line of our own is in a log once, at the begin of a line.
func TestALineOfOursIsSaidOnce(t *testing.T) {
	l := testLog(t)
	for _, text := range []string{"one", "two", "two", "one"} {
		if err := l.say(t.Context(), text, text); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	err := l.append(t.Context(), []byte("open"))
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.say(t.Context(), "three", "three"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(l.path()); err != nil || string(got) != "one\ntwo\nopen\nthree\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// Of a callback's output the end goes back, without what was there before, as text.
func TestTheEndOfACallbacksOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if got := tailFrom(file, 0); got != "" {
		t.Errorf("no file: %q", got)
	}
	long := strings.Repeat("x", callbackTail)
	for _, tt := range []struct {
		text string
		from int64
		want string
	}{{"before|after", 7, "after"}, {"before", 6, ""}, {"before", 60, ""}, {"all", 0, "all"}, {"cut" + long, 0, long}, {"cut" + long, 1, long}, {"a\xffb", 0, "a\uFFFDb"}} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tailFrom(file, tt.from); got != tt.want {
			t.Errorf("%.20q from %d: %.20q", tt.text, tt.from, got)
		}
	}
}

// Ranks are kept under names that lead nowhere else.
func TestKeysOfRanksAreNames(t *testing.T) {
	a := opened(t, t.TempDir(), nil)
	for _, key := range []string{"", "..", "../x", "a/b", ".hidden", "-x", strings.Repeat("x", 152), "a b", "a\n"} {
		if _, err := a.ranks.start(&rankSpec{Key: key}); err == nil {
			t.Errorf("%q was started", key)
		}
		if err := a.ranks.prepare(&rankSpec{Key: key}); err == nil {
			t.Errorf("%q was prepared", key)
		}
		if _, err := a.ranks.wait(t.Context(), key); err == nil {
			t.Errorf("%q was waited for", key)
		}
		if _, err := a.ranks.end(t.Context(), key, 0); err == nil {
			t.Errorf("%q was ended", key)
		}
		if err := a.ranks.forget(key); err == nil {
			t.Errorf("%q was forgotten", key)
		}
		if _, err := a.ranks.output(key); err == nil || a.ranks.running(key) {
			t.Errorf("%q has output: %v", key, err)
		}
	}
	if err := a.ranks.prepare(&rankSpec{Key: strings.Repeat("x", 151), Script: "true"}); err != nil {
		t.Error(err)
	}
}

// What the files of a rank say is what is known of it.
func TestWhatTheFilesOfARankSay(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  rankStatus
	}{
		{"nothing", nil, rankStatus{State: rankAbsent}},
		{"not begun", map[string]string{"exit": string(exitRoom)}, rankStatus{State: rankAbsent}},
		{"a number half written", map[string]string{"pid": "12", "exit": "3"}, rankStatus{State: rankAbsent}},
		{"exited", map[string]string{"pid": "12\n", "exit": "3\n       "}, rankStatus{State: rankExited, PID: 12, Code: 3}},
		{"we ended it", map[string]string{"pid": "12\n", "exit": "3\n", "ended": ""}, rankStatus{State: rankExited, PID: 12, Code: codeEnded, Ended: true}},
		{"gone", map[string]string{"pid": "1\n", "exit": string(exitRoom)}, rankStatus{State: rankLost, PID: 1, Code: codeLost, Reason: "its process disappeared and left no exit code"}},
	} {
		d := rankDir(t.TempDir())
		for name, text := range tt.files {
			if err := os.WriteFile(d.file(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.status(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	d := rankDir(filepath.Join(t.TempDir(), "key"))
	if err := errors.Join(d.prepare(&rankSpec{Script: "one"}), d.record(12345), d.record(7)); err != nil {
		t.Fatal(err)
	}
	if code, ok := d.number("exit"); !ok || code != 7 {
		t.Errorf("its code is %d (%v)", code, ok)
	}
	if err := errors.Join(os.WriteFile(d.file("pid"), []byte("1\n"), 0o600), d.prepare(&rankSpec{Script: "two"})); err != nil {
		t.Fatal(err)
	}
	if script, err := os.ReadFile(d.file("script")); err != nil || string(script) != "one" {
		t.Errorf("what has started runs %q (%v)", script, err)
	}
	for _, name := range []string{"exit", "script"} {
		if st, err := os.Stat(d.file(name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

// A queue says of each call what is wrong with it.
func TestWhatAnAgentSaysOfItsJobs(t *testing.T) {
	a := opened(t, t.TempDir(), nil)
	for id, want := range map[int]string{0: "there is no job on this cluster yet", 4: "there is no job 4 on this cluster"} {
		_, err := a.jobOf(id)
		if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeNotFound || e.Message != want {
			t.Errorf("%d: %v", id, err)
		}
	}
	a.spec = memberOf(0, 2)
	submit := func(key string, epoch int64, spec agentapi.JobSpec) (*agentapi.SubmitResponse, error) {
		return a.submit(&agentapi.SubmitRequest{Key: key, Epoch: epoch, Spec: spec})
	}
	got, err := submit("k", 2, agentapi.JobSpec{Name: "a b", Resources: "1x", Metadata: map[string]string{"git_commit": "x"}, User: "ann", UserHash: "u"})
	if err != nil || got.JobID != 1 || got.Duplicate || got.SubmittedAt == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if again, err := submit("k", 1, agentapi.JobSpec{}); err != nil || again.JobID != 1 || !again.Duplicate || again.SubmittedAt != got.SubmittedAt {
		t.Errorf("again: %+v, %v", again, err)
	}
	rec, err := a.jobOf(0)
	if err != nil {
		t.Fatal(err)
	}
	j := a.explained(rec)
	if j.Name != "a b" || j.LogDir != "~/sky_logs/1-a-b" || j.NumNodes != 1 || j.User != "ann" || j.UserHash != "u" || j.Resources != "1x" || !maps.Equal(j.Metadata, map[string]string{"git_commit": "x"}) ||
		!strings.HasPrefix(j.TaskID, "sky-") || !strings.HasSuffix(j.TaskID, "_c_1") || !strings.HasPrefix(j.Reason, "waits for ") {
		t.Errorf("%+v", j)
	}
	if _, err := submit("l", 2, agentapi.JobSpec{TaskID: "mine"}); err != nil {
		t.Fatal(err)
	}
	if rec, err := a.jobOf(2); err != nil || rec.Job.TaskID != "mine" || rec.Job.Name != "-" || rec.Job.LogDir != "~/sky_logs/2--" {
		t.Errorf("%+v, %v", rec, err)
	}
	log, err := os.ReadFile(filepath.Join(a.logDir(&j), "run.log"))
	if err != nil || string(log) != "├── Waiting for task resources on 1 node.\n" || waitingLine(2) != "├── Waiting for task resources on 2 nodes." {
		t.Errorf("%q, %v", log, err)
	}
}
