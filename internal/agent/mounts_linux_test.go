package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/mount"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

func init() {
	mountMain = serveMounts
	if os.Getenv(mountLooks) != "" {
		runtime.LockOSThread() // main is the first thread, which a process is alive by
	}
}

// mountLooks makes that process call into a mount of its own again and again.
const mountLooks = "SKY_TEST_MOUNT_LOOKS"

// serveMounts makes this test binary the process that holds the mounts of a folder.
func serveMounts(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mount.Serve(ctx, mount.Options{Dir: dir}) }()
	if path := os.Getenv(mountLooks); path != "" {
		look := func() {
			for ctx.Err() == nil {
				_, _ = os.Stat(path)
			}
		}
		go look()
		look()
	}
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mountBed is a cluster of one node, and a store.
type mountBed struct {
	*testCluster
	t      *testing.T
	store  *memory.Store
	url    string
	away   atomic.Bool  // the store answers nothing but 503
	refuse atomic.Int64 // the status that writes are answered with
	denied atomic.Int64 // how many were answered with it
	client *mountapi.Client
}

func newMountBed(t *testing.T) *mountBed {
	t.Helper()
	return newMountBedOf(t, 1)
}

// newMountBedOf is one of several nodes.
func newMountBedOf(t *testing.T, nodes int) *mountBed {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil || os.Geteuid() != 0 {
		t.Skip("mounting needs root and /dev/fuse")
	}
	f.Close()
	b := &mountBed{t: t, store: &memory.Store{}, testCluster: newCluster(t, nodes, twoCPUs, true)}
	if err := b.store.Bucket("bucket").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	answer := b.store.ServeS3("key")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if s := b.refuse.Load(); s != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead {
			b.denied.Add(1)
			w.WriteHeader(int(s))
			return
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	b.url = srv.URL
	b.client = mountapi.NewClient(mountapi.Socket(filepath.Join(b.home(), ".sky", "mounts")))
	t.Cleanup(func() {
		for _, n := range b.nodes {
			n.stop() // it would bring the mounts back
			if pid, err := mountapi.Listener(context.Background(), mountapi.Socket(filepath.Join(n.home, ".sky", "mounts"))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			_ = mountpoints.Abort(func(path string) bool { return strings.HasPrefix(path, n.home+"/") })
			if err := mountpoints.DetachBelow(n.home); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

func (b *mountBed) home() string { return b.nodes[0].home }

func (b *mountBed) request() agentapi.MountsRequest {
	return agentapi.MountsRequest{Epoch: b.spec.Epoch, Command: "exec '" + os.Args[0] + "'", Mounts: []agentapi.NodeMount{{
		Spec:        agentapi.MountSpec{Path: "~/m", URL: "s3://bucket", Region: "us-east-1", Endpoint: b.url, Mode: agentapi.MountCached},
		Credentials: agentapi.MountCredentials{AccessKey: "key", SecretKey: "hush-hush"},
	}}}
}

func (b *mountBed) mount() string {
	b.t.Helper()
	a, err := b.head.Mounts(b.t.Context(), b.request())
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(a.Did, " ")
}

func (b *mountBed) helper() int {
	h, err := b.client.Health(b.t.Context())
	if err != nil {
		return 0
	}
	return h.PID
}

// killHelper kills sky-mount and returns which process it was.
func (b *mountBed) killHelper() int {
	b.t.Helper()
	pid := b.helper()
	if pid == 0 {
		b.t.Fatal("sky-mount does not answer")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.t.Fatal(err)
	}
	return pid
}

func (b *mountBed) content(key string) string {
	r, err := b.store.Bucket("bucket").Get(b.t.Context(), key, storage.GetOptions{})
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		b.t.Error(err)
	}
	return string(text)
}

func (b *mountBed) until(what string, f func() bool) {
	b.t.Helper()
	for end := time.Now().Add(hanging); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("waiting for %s", what)
		}
	}
}

func (b *mountBed) restart(between func()) {
	b.nodes[0].stop()
	between()
	b.nodes[0].runHere()
}

// A process that waits for its own mount when it is killed is not gone, and who uses the
// mount waits, too. That comes to an end, even with one mount in another.
func TestMountsAreBroughtBackWhoseProcessIsStuck(t *testing.T) {
	t.Parallel()
	b := newMountBed(t)
	path := filepath.Join(b.home(), "m")
	r := b.request()
	r.Command = mountLooks + "='" + path + "' " + r.Command
	inner := r.Mounts[0]
	inner.Spec.Path, inner.Spec.URL = "~/m/inner", "s3://bucket/other"
	r.Mounts = append([]agentapi.NodeMount{inner}, r.Mounts...)
	if _, err := b.head.Mounts(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		pid := b.helper()
		start, err := proc.StartTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		b.killHelper()
		b.until("its death", func() bool { return !proc.Alive(pid, start) || proc.Killed(pid) })
		time.Sleep(100 * time.Millisecond)
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		b.until("another process", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			h, err := b.client.Health(ctx)
			if err != nil || h.PID == pid {
				return false
			}
			stats, err := b.client.Stats(ctx)
			return err == nil && mountedIn(stats, path, nil) && mountedIn(stats, filepath.Join(path, "inner"), nil)
		})
		for _, name := range []string{"x", "inner/x"} {
			if err := os.WriteFile(filepath.Join(path, name), []byte("text"), 0o644); err != nil {
				t.Error(err)
			}
		}
		if len(tasks) > 0 { // it was stuck
			return
		}
	}
	t.Skip("none of five killed processes was stuck")
}

// Nothing is mounted in the folder below a mount that is not there.
func TestAMountInsideOneThatFails(t *testing.T) {
	b := newMountBed(t)
	r := b.request()
	inner := r.Mounts[0]
	inner.Spec.Path = "~/gone/inner"
	gone := r.Mounts[0]
	gone.Spec.Path, gone.Spec.URL = "~/gone", "s3://a-other"
	r.Mounts = append([]agentapi.NodeMount{inner, gone}, r.Mounts...)
	_, err := b.head.Mounts(t.Context(), r)
	if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != agentapi.CodeBucket || !strings.Contains(e.Message, "a-other") {
		t.Errorf("%v", err)
	}
	stats, err := b.client.Stats(t.Context())
	if err != nil || len(stats.Mounts) != 1 || !mountedIn(stats, filepath.Join(b.home(), "m"), nil) {
		t.Errorf("%+v, %v", stats.Mounts, err)
	}
}

// What is mounted outlives the agent and the process that holds it.
func TestMountsAreBroughtBack(t *testing.T) {
	b := newMountBed(t)
	if did := b.mount(); did != mountapi.Mounted {
		t.Errorf("the first call %s", did)
	}
	if did := b.mount(); did != mountapi.Kept {
		t.Errorf("the second call %s", did)
	}
	file := filepath.Join(b.home(), "m", "x")
	if job := b.awaitEnd(b.submit(agentapi.JobSpec{Run: "echo text > ~/m/x"})); job.Status != api.JobSucceeded || b.content("x") != "text\n" {
		t.Errorf("job %+v; the bucket has %q", job, b.content("x"))
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	other := b.request()
	other.Mounts[0].Spec.ReadOnly = true
	if e, ok := errors.AsType[*agentapi.Error](func() error { _, err := b.head.Mounts(t.Context(), other); return err }()); !ok || e.Code != agentapi.CodeInUse {
		t.Errorf("changing what is in use: %v", e)
	}
	f.Close()
	// The process that holds it dies.
	pid := b.killHelper()
	b.until("the mount after the death of its process", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "text\n" && b.helper() != pid
	})
	// The agent dies: nothing changes.
	pid = b.helper()
	b.restart(func() {})
	if b.helper() != pid {
		t.Error("the mounts went with the agent")
	}
	if did := b.mount(); did != mountapi.Kept {
		t.Errorf("the call after a restart %s", did)
	}
	// Both die: a job waits for credentials, and does not write below the mount.
	b.restart(func() { b.killHelper() })
	id := b.submit(agentapi.JobSpec{Run: "echo more > ~/m/y"})
	job := b.await(id, "the reason", func(j *agentapi.Job) bool { return strings.Contains(j.Reason, "credentials") })
	if job.Status.Terminal() {
		t.Errorf("the job is %s", job.Status)
	}
	info, err := b.head.Info(t.Context())
	if err != nil || info.Mounts == nil || !info.Mounts.NeedCredentials {
		t.Errorf("%+v, %v", info.Mounts, err)
	}
	if did := b.mount(); did != mountapi.Restored {
		t.Errorf("the call after both died %s", did)
	}
	if job := b.awaitEnd(id); job.Status != api.JobSucceeded || b.content("y") != "more\n" {
		t.Errorf("job %+v; the bucket has %q", job, b.content("y"))
	}
	if text, err := os.ReadFile(filepath.Join(b.home(), ".sky", "agent", "jobs.db")); err != nil || strings.Contains(string(text), "hush-hush") {
		t.Errorf("the secret is on the disk, or %v", err)
	}
}

// A job has not succeeded before the bucket has what it wrote; what cannot be stored fails
// it, and is uploaded in the end if it can be by then.
func TestJobsEndWhenTheBucketsHaveWhatTheyWrote(t *testing.T) {
	b := newMountBed(t)
	b.mount()
	b.refuse.Store(http.StatusServiceUnavailable)
	id := b.submit(agentapi.JobSpec{Run: "echo text > ~/m/x; (sleep 0.1; echo late > ~/m/late) & echo over"})
	b.until("what is dirty", func() bool {
		info, err := b.head.Info(t.Context())
		files, _ := info.Mounts.Dirty()
		return err == nil && files > 0
	})
	if job := b.job(id); job.Status != api.JobRunning {
		t.Errorf("the job is %s although nothing is uploaded", job.Status)
	}
	b.refuse.Store(0)
	if job := b.awaitEnd(id); job.Status != api.JobSucceeded || b.content("x") != "text\n" {
		t.Errorf("job %+v; the bucket has %q", job, b.content("x"))
	}
	b.refuse.Store(http.StatusForbidden)
	job := b.awaitEnd(b.submit(agentapi.JobSpec{Run: "echo lost > ~/m/lost"}))
	if job.Status != api.JobFailed || !strings.Contains(job.Reason, "m/lost: ") {
		t.Errorf("job %+v", job)
	}
	b.refuse.Store(0)
	info, err := b.head.Shutdown(t.Context(), agentapi.ShutdownRequest{})
	if files, _ := info.Mounts.Dirty(); err != nil || files > 0 || b.content("lost") != "lost\n" {
		t.Errorf("after the end %d files are dirty, the bucket has %q, %v", files, b.content("lost"), err)
	}
	if b.helper() != 0 {
		t.Error("sky-mount still runs")
	}
	if names, err := os.ReadDir(filepath.Join(b.home(), "m")); err != nil || len(names) > 0 {
		t.Errorf("after the end: %v, %v", names, err)
	}
}

func TestMountsThatAreRefused(t *testing.T) {
	b := newMountBed(t)
	for name, c := range map[string]struct {
		change func(*agentapi.MountsRequest)
		want   agentapi.ErrorCode
	}{
		"a bucket that is not there": {func(r *agentapi.MountsRequest) { r.Mounts[0].Spec.URL = "s3://other" }, agentapi.CodeBucket},
		"keys that are not taken":    {func(r *agentapi.MountsRequest) { r.Mounts[0].Credentials.AccessKey = "x" }, agentapi.CodeBucket},
		"a relative path":            {func(r *agentapi.MountsRequest) { r.Mounts[0].Spec.Path = "m" }, agentapi.CodeInvalid},
		"an old epoch":               {func(r *agentapi.MountsRequest) { r.Epoch = 0 }, agentapi.CodeStaleEpoch},
		"no program":                 {func(r *agentapi.MountsRequest) { r.Command = "exec /not/there" }, agentapi.CodeInternal},
	} {
		r := b.request()
		c.change(&r)
		_, err := b.head.Mounts(t.Context(), r)
		if e, ok := errors.AsType[*agentapi.Error](err); !ok || e.Code != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := b.head.Info(t.Context()); err != nil || info.Mounts != nil {
		t.Errorf("%+v, %v", info.Mounts, err)
	}
	if b.helper() != 0 {
		t.Error("sky-mount runs for nothing")
	}
}

// A cluster that gives itself back waits until the buckets have what was written.
func TestAnAutostopWaitsForWhatIsNotStored(t *testing.T) {
	for _, down := range []bool{false, true} {
		act := map[bool]string{false: "stop", true: "terminate"}[down]
		t.Run(act, func(t *testing.T) {
			b := newMountBed(t)
			b.mount()
			b.refuse.Store(http.StatusServiceUnavailable)
			if err := os.WriteFile(filepath.Join(b.home(), "m", "x"), []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := b.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 0, Down: down, WaitFor: api.WaitForNone}); err != nil {
				t.Fatal(err)
			}
			b.until("the cluster to give itself back", func() bool {
				info, err := b.head.Info(t.Context())
				return err == nil && info.State == agentapi.AgentAutostopping
			})
			tries := b.denied.Load()
			b.until("more tries to upload", func() bool { return b.denied.Load() >= tries+3 })
			if text, err := os.ReadFile(filepath.Join(b.home(), "machine")); err == nil {
				t.Errorf("the machine was told to %s although nothing is uploaded", text)
			}
			b.refuse.Store(0)
			machineTime(t, b.nodes[0], act)
			if got := b.content("x"); got != "text" {
				t.Errorf("the bucket has %q", got)
			}
		})
	}
}

// A node that is taken back uploads what it has at once, also a worker whose head is gone.
func TestANoticeUploadsWhatIsNotStored(t *testing.T) {
	for name, nodes := range map[string]int{"a head": 1, "a worker without a head": 2} {
		t.Run(name, func(t *testing.T) {
			b := newMountBedOf(t, nodes)
			b.spec.Cloud, b.spec.Epoch = "kubernetes", 2
			b.configure()
			n := b.nodes[nodes-1]
			r := b.request()
			r.Mounts[0].Spec.Config.WriteBack = time.Hour // nothing is uploaded without a reason
			if _, err := n.client.Mounts(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(n.home, "m", "x"), []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			if nodes > 1 {
				b.nodes[0].stop()
			}
			if got := b.content("x"); got == "text" {
				t.Fatal("it is uploaded already")
			}
			awaitFile(t, fmt.Sprint(os.Getpid()), n.home, "orchestrator/"+agentapi.EndingPID)
			if err := os.WriteFile(filepath.Join(n.home, "orchestrator", agentapi.EndingFile), []byte("600\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			awaitFile(t, "done", n.home, "orchestrator/"+agentapi.EndedFile)
			if got := b.content("x"); got != "text" {
				t.Errorf("the bucket has %q", got)
			}
		})
	}
}

// Where a mount is in another, the outer one is not looked into.
func TestSamePath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	specs := []mountapi.Spec{{Path: dir + "/link/m/not there/inner"}, {Path: dir + "/link/m"}}
	for _, c := range []struct {
		resolved, path string
		want           bool
	}{
		{"/real/m", "/link/m", true},
		{"/real/m/not there/inner", "/link/m/not there/inner", true},
		{"/real/m", "/link/m/not there/inner", false},
		{"/real/m/inner", "/link/m", false},
		{"/link/m", "/link/m", true},
	} {
		if got := samePath(dir+c.resolved, dir+c.path, specs); got != c.want {
			t.Errorf("%s and %s: %v", c.resolved, c.path, got)
		}
	}
}
