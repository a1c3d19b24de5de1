//go:build stores && linux

package stores

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/mount/fusefs"
	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/gcs"
	"github.com/skypilot-go/sky/internal/storage/s3"
)

// mounts is a process that holds mounts, as on a node.
type mounts struct {
	t      testing.TB
	dir    string
	client *mountapi.Client
	cmd    *exec.Cmd
}

func startMounts(t testing.TB) *mounts {
	t.Helper()
	if err := fusefs.Available(); err != nil {
		t.Skip(err)
	}
	binary := filepath.Join(t.TempDir(), "sky-mount")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../../cmd/sky-mount")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := &mounts{t: t, dir: filepath.Join(t.TempDir(), "d")}
	var log bytes.Buffer
	m.cmd = exec.Command(binary, "mount", m.dir)
	m.cmd.Env = append(os.Environ(), "STORAGE_EMULATOR_HOST=")
	m.cmd.Stderr = &log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.client = mountapi.NewClient(mountapi.Socket(m.dir))
	t.Cleanup(func() {
		m.client.Close()
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
		_ = m.cmd.Wait()
		if t.Failed() {
			t.Logf("sky-mount says:\n%s", log.String())
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := m.client.Health(t.Context()); err == nil {
			return m
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// mount mounts a bucket with what opens it, and returns the folder.
func (m *mounts) mount(b storage.Bucket, mode mountapi.Mode) (dir string) {
	m.t.Helper()
	g := storage.GrantTo(b.Location(), "")
	if x, ok := storage.Driver(b).(storage.Granter); ok {
		var err error
		if g, err = x.Grant(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
	dir = m.t.TempDir()
	_, err := m.client.Mount(m.t.Context(), mountapi.MountRequest{
		Spec: mountapi.Spec{Path: dir, URL: b.Location().String(), Region: g.Region, Endpoint: g.Endpoint, Mode: mode},
		Credentials: mountapi.Credentials{AccessKey: g.AccessKey, SecretKey: g.SecretKey, Token: g.Token, AccountKey: g.Key, SAS: g.SAS,
			Anonymous: g.AccessKey == "" && g.Token == "" && g.Key == "" && g.SAS == ""},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// unmount ends a mount once nobody uses it.
func (m *mounts) unmount(dir string) {
	m.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := m.client.Unmount(m.t.Context(), mountapi.UnmountRequest{Path: dir})
		if err == nil {
			return
		}
		if time.Now().After(end) {
			m.t.Fatal(err)
		}
	}
}

// Buckets of each of the real servers are mounted in both modes.
func TestMountsOnRealServers(t *testing.T) {
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	for name, open := range map[string]func(t *testing.T) (storage.Bucket, error){
		"s3": func(t *testing.T) (storage.Bucket, error) {
			return s3.Open(t.Context(), storage.Location{Store: storage.S3, Bucket: "mounted"}, s3Options(s3Server(t), transport))
		},
		"fake-gcs-server": func(t *testing.T) (storage.Bucket, error) {
			return gcs.Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: "mounted"}, gcs.Options{Endpoint: "http://" + fakeGCS(t), Project: "p", Transport: transport})
		},
		"azurite": func(t *testing.T) (storage.Bucket, error) {
			return azure.Open(storage.Location{Store: storage.Azure, Account: "devstoreaccount1", Bucket: "mounted"}, azurite(t, transport))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			m := startMounts(t)
			for _, mode := range []mountapi.Mode{mountapi.Direct, mountapi.Cached} {
				t.Run(string(mode), func(t *testing.T) { useMount(t, m, b, mode, name != "fake-gcs-server") })
			}
		})
	}
}

// useMount does what jobs do with files. large: the server takes uploads in parts.
func useMount(t *testing.T, m *mounts, b storage.Bucket, mode mountapi.Mode, large bool) {
	sub := strings.ToLower(string(mode))
	dir := m.mount(b, mode)
	at := func(name string) string { return filepath.Join(dir, sub, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	size := 1 << 20
	if large {
		size = 20 << 20 // several parts
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	must(os.MkdirAll(at("deep/er"), 0o755))
	must(os.WriteFile(at("deep/er/big"), data, 0o644))
	must(os.WriteFile(at("small"), []byte("one\n"), 0o600))
	add := func(name, text string) {
		f, err := os.OpenFile(at(name), os.O_APPEND|os.O_WRONLY, 0)
		must(err)
		_, err = f.WriteString(text)
		must(err)
		must(f.Close())
	}
	add("small", "two\n")
	add("deep/er/big", "more") // MOUNT: what is there becomes parts by copies in the store
	data = append(data, "more"...)
	must(os.Rename(at("small"), at("renamed")))
	must(os.WriteFile(at("goes"), []byte("x"), 0o644))
	must(os.Remove(at("goes")))
	must(os.Symlink("renamed", at("link")))
	_, err := m.client.Flush(t.Context(), mountapi.FlushRequest{Path: dir})
	must(err)
	// What is in the store now is what was written.
	content := func(key string) []byte {
		t.Helper()
		r, err := b.Get(t.Context(), sub+"/"+key, storage.GetOptions{})
		must(err)
		defer r.Close()
		text, err := io.ReadAll(r)
		must(err)
		return text
	}
	if !bytes.Equal(content("deep/er/big"), data) || string(content("renamed")) != "one\ntwo\n" {
		t.Error("the store has something else")
	}
	for _, key := range []string{"small", "goes"} {
		if _, err := b.Stat(t.Context(), sub+"/"+key); err == nil {
			t.Errorf("%s is still there", key)
		}
	}
	// Another mount, which knows nothing yet, shows the same.
	m.unmount(dir)
	_, err = b.Put(t.Context(), sub+"/theirs", strings.NewReader("by others"), storage.PutOptions{})
	must(err)
	dir = m.mount(b, mode)
	defer m.unmount(dir)
	names, err := os.ReadDir(at("."))
	must(err)
	if got := fmt.Sprint(names); got != "[d deep/ L link - renamed - theirs]" {
		t.Errorf("it lists %s", got)
	}
	for name, want := range map[string]string{"deep/er/big": string(data), "link": "one\ntwo\n", "theirs": "by others"} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
