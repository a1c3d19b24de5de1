//go:build linux

package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/owner"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// helperDir makes this test binary the process that holds the mounts of a folder.
const helperDir = "SKY_MOUNT_TEST_DIR"

// helperMounts makes it mount by another process.
const helperMounts = "SKY_MOUNT_TEST_HELPER"

// helperBroker makes it mount by the broker of a folder.
const helperBroker = "SKY_MOUNT_TEST_BROKER"

// helperProgram makes it mount by that fusermount.
const helperProgram = "SKY_MOUNT_TEST_FUSERMOUNT"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "privileged" {
		os.Exit(Privileged(os.Args[2], os.Stdin, os.Stdout))
	}
	if args := os.Getenv(fsxFile); args != "" {
		if err := fsxMain(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(helperDir); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		o := Options{Dir: dir, Log: log}
		if program := os.Getenv(helperProgram); program != "" {
			o.Rights = &Fusermount{program}
		} else if broker := os.Getenv(helperBroker); broker != "" {
			o.Rights = FindBroker(broker)
		} else if os.Getenv(helperMounts) != "" {
			o.Rights = &Helper{Command: []string{os.Args[0], "privileged"}}
		}
		if err := Serve(ctx, o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A rig is a store, a process that holds mounts, and a client of it.
type rig struct {
	t      testing.TB
	store  *memory.Store
	server *httptest.Server
	refuse atomic.Int64 // status that the store answers with
	dir    string       // of the helper
	path   string       // where is mounted
	helper *exec.Cmd
	helped bool     // it mounts by another process
	broker string   // folder of the broker that mounts for it
	enter  []string // command that starts it in another mount namespace
	log    *bytes.Buffer
	client *mountapi.Client
}

func newRig(t testing.TB) *rig {
	t.Helper()
	if err := fusefs.Available(); err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root, or a user namespace")
	}
	r := &rig{t: t, store: &memory.Store{MinPart: 5 << 20}, dir: filepath.Join(t.TempDir(), "d"), path: filepath.Join(t.TempDir(), "some/where")}
	if err := r.bucket().Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	serve := r.store.ServeS3("key")
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if s := r.refuse.Load(); s != 0 && q.Method != http.MethodGet && q.Method != http.MethodHead {
			w.WriteHeader(int(s))
			return
		}
		serve.ServeHTTP(w, q)
	}))
	t.Cleanup(r.server.Close)
	r.start()
	t.Cleanup(func() {
		r.kill(syscall.SIGKILL)
		if _, err := clearPath(r.path, fusefs.Detach); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the helper's log:\n%s", r.log)
		}
		if strings.Contains(r.log.String(), "secret") {
			t.Error("the log holds a secret")
		}
	})
	return r
}

func (r *rig) bucket() *memory.Bucket { return r.store.Bucket("bucket") }

func (r *rig) start() {
	r.t.Helper()
	r.log = &bytes.Buffer{}
	command := append(slices.Clone(r.enter), os.Args[0])
	r.helper = exec.Command(command[0], command[1:]...)
	r.helper.Env = append(os.Environ(), helperDir+"="+r.dir)
	if r.broker != "" {
		r.helper.Env = append(r.helper.Env, helperBroker+"="+r.broker)
	}
	if r.helped {
		r.helper.Env = append(r.helper.Env, helperMounts+"=1")
	}
	r.helper.Stderr = r.log
	if err := r.helper.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.client = mountapi.NewClient(mountapi.Socket(r.dir))
	waitFor(r.t, "the helper", func() bool {
		h, err := r.client.Health(r.t.Context())
		return err == nil && h.PID == r.helper.Process.Pid
	})
}

func (r *rig) kill(s syscall.Signal) {
	if r.helper == nil {
		return
	}
	_ = r.helper.Process.Signal(s)
	_ = r.helper.Wait()
	r.helper = nil
	r.client.Close()
}

func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

func (r *rig) request() mountapi.MountRequest {
	return mountapi.MountRequest{
		Spec:        mountapi.Spec{Path: r.path, URL: "s3://bucket", Region: "us-east-1", Endpoint: r.server.URL, Mode: mountapi.Direct},
		Credentials: mountapi.Credentials{AccessKey: "key", SecretKey: "secret"},
	}
}

func (r *rig) mount(q mountapi.MountRequest) string {
	r.t.Helper()
	a, err := r.client.Mount(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Did
}

func code(err error) mountapi.Code {
	e, _ := errors.AsType[*mountapi.Error](err)
	if e == nil {
		return ""
	}
	return e.Code
}

func (r *rig) file(name string) string { return filepath.Join(r.path, name) }

func (r *rig) content(key string) string {
	r.t.Helper()
	x, err := r.bucket().Get(r.t.Context(), key, storage.GetOptions{})
	if err != nil {
		return err.Error()
	}
	defer x.Close()
	data, err := io.ReadAll(x)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

func TestMountsAreKeptAndChangedAndEnded(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	if info, err := os.Stat(mountapi.Socket(r.dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	if did := r.mount(r.request()); did != mountapi.Mounted {
		t.Errorf("the first call %s", did)
	}
	f, err := os.Create(r.file("x"))
	if err != nil {
		t.Fatal(err)
	}
	if did := r.mount(r.request()); did != mountapi.Kept {
		t.Errorf("the second call %s", did)
	}
	other := r.request()
	other.Spec.ReadOnly = true
	if _, err := r.client.Mount(ctx, other); code(err) != mountapi.InUse {
		t.Errorf("changing what is in use: %v", err)
	}
	if err := r.client.Unmount(ctx, mountapi.UnmountRequest{Path: r.path}); code(err) != mountapi.InUse {
		t.Errorf("unmounting what is in use: %v", err)
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.content("x"); got != "text" {
		t.Errorf("the bucket has %q", got)
	}
	waitFor(t, "the mount to be changed", func() bool {
		_, err := r.client.Mount(ctx, other)
		return err == nil
	})
	if err := os.WriteFile(r.file("y"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing to what is read only now: %v", err)
	}
	s, err := r.client.Stats(ctx)
	if err != nil || len(s.Mounts) != 1 || !s.Mounts[0].Mounted || !s.Mounts[0].Spec.ReadOnly {
		t.Errorf("stats: %+v, %v", s, err)
	}
	waitFor(t, "the end", func() bool { return r.client.Unmount(ctx, mountapi.UnmountRequest{Path: r.path}) == nil })
	if names, err := os.ReadDir(r.path); err != nil || len(names) > 0 {
		t.Errorf("after the end: %v, %v", names, err)
	}
	if err := r.client.Unmount(ctx, mountapi.UnmountRequest{Path: r.path}); err != nil {
		t.Errorf("ending again: %v", err)
	}
	waitFor(t, "the list to be empty", func() bool { s, err := r.client.Stats(ctx); return err == nil && len(s.Mounts) == 0 })
}

func TestWhatADeadProcessLeftIsRestored(t *testing.T) {
	r := newRig(t)
	r.mount(r.request())
	if err := os.WriteFile(r.file("x"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.kill(syscall.SIGKILL)
	if _, err := os.Stat(r.file("x")); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("the mount of a dead process: %v", err)
	}
	r.start()
	if did := r.mount(r.request()); did != mountapi.Restored {
		t.Errorf("the call %s", did)
	}
	if got, err := os.ReadFile(r.file("x")); err != nil || string(got) != "text" {
		t.Errorf("it reads %q, %v", got, err)
	}
	// A process that is asked to end takes its mounts away.
	r.kill(syscall.SIGTERM)
	if names, err := os.ReadDir(r.path); err != nil || len(names) > 0 {
		t.Errorf("after the end: %v, %v", names, err)
	}
	r.start()
	// An unmount after a death takes the mount away, too.
	r.mount(r.request())
	r.kill(syscall.SIGKILL)
	r.start()
	if err := r.client.Unmount(t.Context(), mountapi.UnmountRequest{Path: r.path}); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(r.path); err != nil || len(names) > 0 {
		t.Errorf("after the end: %v, %v", names, err)
	}
}

func TestMountsThatCannotBeAreRefused(t *testing.T) {
	r := newRig(t)
	full := filepath.Join(t.TempDir(), "full")
	if err := os.MkdirAll(filepath.Join(full, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(q *mountapi.MountRequest)
		want   mountapi.Code
	}{
		{"a folder with files", func(q *mountapi.MountRequest) { q.Spec.Path = full }, mountapi.NotEmpty},
		{"a file", func(q *mountapi.MountRequest) { q.Spec.Path = file }, mountapi.NotEmpty},
		{"a relative path", func(q *mountapi.MountRequest) { q.Spec.Path = "x" }, mountapi.Invalid},
		{"the root", func(q *mountapi.MountRequest) { q.Spec.Path = "/" }, mountapi.Invalid},
		{"no URL", func(q *mountapi.MountRequest) { q.Spec.URL = "bucket" }, mountapi.Invalid},
		{"no mode", func(q *mountapi.MountRequest) { q.Spec.Mode = "COPY" }, mountapi.Invalid},
		{"a bucket that is not there", func(q *mountapi.MountRequest) { q.Spec.URL = "s3://other" }, mountapi.NoBucket},
		{"a key that is not taken", func(q *mountapi.MountRequest) { q.Credentials.AccessKey = "wrong" }, mountapi.Denied},
		{"keys of another store", func(q *mountapi.MountRequest) { q.Credentials = mountapi.Credentials{Token: "x"} }, mountapi.Denied},
	} {
		q := r.request()
		tt.change(&q)
		_, err := r.client.Mount(t.Context(), q)
		if code(err) != tt.want {
			t.Errorf("%s: %v (%s), want %s", tt.name, err, code(err), tt.want)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Error(string(got), err)
	}
}

func TestOneProcessHoldsTheMounts(t *testing.T) {
	r := newRig(t)
	if err := Serve(t.Context(), Options{Dir: r.dir}); !errors.Is(err, ErrRunning) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := r.client.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAFailedCloseIsFoundByTheJobsFlush(t *testing.T) {
	r := newRig(t)
	r.mount(r.request())
	r.refuse.Store(http.StatusForbidden)
	cmd := exec.Command("sh", "-c", "echo text > "+r.file("lost"))
	cmd.Env = []string{owner.Variable + "=h-1-run-0", "PATH=/usr/bin:/bin"}
	_ = cmd.Run() // a shell does not look at close
	r.refuse.Store(0)
	_, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Ranks: []string{"h-1-run-0"}})
	e, _ := errors.AsType[*mountapi.Error](err)
	if e == nil || e.Code != mountapi.NotStored || len(e.Files) == 0 || e.Files[0].Path != "lost" {
		t.Errorf("the job's flush: %v", err)
	}
	if _, err := r.client.Flush(t.Context(), mountapi.FlushRequest{Ranks: []string{"h-2-run-0"}}); err != nil {
		t.Errorf("another job's flush: %v", err)
	}
}

func TestCredentialsAreReplacedWhileMounted(t *testing.T) {
	r := newRig(t)
	r.mount(r.request())
	if err := os.WriteFile(r.file("x"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong := mountapi.CredentialsRequest{Path: r.path, Credentials: mountapi.Credentials{AccessKey: "wrong", SecretKey: "secret"}}
	if err := r.client.Renew(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(r.file("x")); !errors.Is(err, syscall.EACCES) {
		t.Errorf("with a key that is not taken: %v", err)
	}
	if did := r.mount(r.request()); did != mountapi.Kept {
		t.Errorf("the call %s", did)
	}
	if got, err := os.ReadFile(r.file("x")); err != nil || string(got) != "text" {
		t.Errorf("with the right key: %q, %v", got, err)
	}
}

func TestFilesBelongToTheJobsUser(t *testing.T) {
	const uid = 12345
	r := newRig(t)
	// Others may go through the folders above.
	for dir := r.path; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // what is not there yet is made so
	}
	for _, mode := range []mountapi.Mode{mountapi.Direct, mountapi.Cached} {
		q := r.request()
		q.Spec.UID, q.Spec.GID, q.Spec.Mode = uid, uid, mode
		waitFor(t, "the mount", func() bool { _, err := r.client.Mount(t.Context(), q); return err == nil })
		run := func(id uint32, script string) error {
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
		name := r.file(string(mode))
		if err := run(uid, "echo text > "+name+"; mkdir "+name+".d; mv "+name+" "+name+".d/x"); err != nil {
			t.Fatal(mode, err)
		}
		info, err := os.Stat(name + ".d/x")
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%s: the owner: %v, %v", mode, info, err)
		}
		if err := run(uid+1, "echo text > "+name+".other"); err == nil {
			t.Errorf("%s: another user writes", mode)
		}
	}
}

// A bucket that cannot be written to is refused when it is mounted, with the permission that
// is missing, unless it is mounted to be read, or a process that died had it.
func TestABucketThatCannotBeWrittenIsRefused(t *testing.T) {
	r := newRig(t)
	r.mount(r.request())
	if page, err := r.bucket().List(t.Context(), storage.ListOptions{}); err != nil || len(page.Objects) > 0 {
		t.Errorf("the probe left %v, %v", page.Objects, err)
	}
	r.refuse.Store(http.StatusForbidden)
	r.kill(syscall.SIGKILL)
	r.start()
	if a, err := r.client.Mount(t.Context(), r.request()); err != nil || a.Did != mountapi.Restored {
		t.Errorf("what died is not restored: %+v, %v", a, err)
	}
	waitFor(t, "the unmount", func() bool {
		return r.client.Unmount(t.Context(), mountapi.UnmountRequest{Path: r.path}) == nil
	})
	for _, q := range []mountapi.MountRequest{r.request(), r.cached(time.Hour)} {
		waitFor(t, "the end of the volume before", func() bool {
			s, err := r.client.Stats(t.Context())
			return err == nil && len(s.Mounts) == 0
		})
		_, err := r.client.Mount(t.Context(), q)
		if e, ok := errors.AsType[*mountapi.Error](err); !ok || e.Code != mountapi.Denied || !strings.Contains(e.Message, "grant s3:PutObject") {
			t.Errorf("%s: %v", q.Spec.Mode, err)
		}
		q.Spec.ReadOnly = true
		if _, err := r.client.Mount(t.Context(), q); err != nil {
			t.Errorf("%s to be read: %v", q.Spec.Mode, err)
		}
		if err := r.client.Unmount(t.Context(), mountapi.UnmountRequest{Path: r.path}); err != nil {
			t.Error(err)
		}
	}
}
