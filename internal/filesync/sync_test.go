//go:build unix

package filesync

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pair gives the two ends of a local connection.
func pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sync")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// serve runs a receiver whose home is a new folder.
func serve(t testing.TB, home string) net.Conn {
	t.Helper()
	client, server := pair(t)
	done := make(chan error, 1)
	go func() { done <- Serve(context.Background(), server, home) }()
	t.Cleanup(func() {
		client.Close()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the receiver goes on after its connection was closed")
		}
	})
	return client
}

// A checker is a testing.TB or a rapid.T.
type checker interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}

// write makes files: the name tells the path, "/" at its end a folder.
func write(t checker, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if name[len(name)-1] == '/' {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshot describes a whole tree: mode, time and content of everything.
func snapshot(t checker, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range Walk(Local(dir), false, nil) {
		if err != nil {
			t.Fatal(err)
		}
		text := e.Mode.String()
		if e.Path != "." {
			text += e.ModTime.UTC().Format(" 2006-01-02T15:04:05.000000000")
		}
		if e.Mode.IsRegular() {
			data, err := os.ReadFile(filepath.Join(dir, e.Path))
			if err != nil {
				t.Fatal(err)
			}
			text += " " + string(data)
		}
		all[e.Path] = text + e.Target
	}
	return all
}

func equal(t checker, src, dst string) {
	t.Helper()
	want, got := snapshot(t, src), snapshot(t, dst)
	for path, text := range want {
		if got[path] != text {
			t.Errorf("%q is %.200q, want %.200q", path, got[path], text)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("%q should not be there", path)
		}
	}
}

func TestFirstAndSecondSync(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"a": "1", "d/b": "22", "d/e/f/c": "", "empty/": ""})
	conn := serve(t, home)
	o := Options{Src: Local(src), Dst: "~/x/y"}
	st, err := Send(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	if st.Files != 3 || st.Sent != 3 || st.Bytes != 3 {
		t.Errorf("%+v", st)
	}
	equal(t, src, filepath.Join(home, "x/y"))
	st, err = Send(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	if st.Files != 3 || st.Sent != 0 || st.SentBytes != 0 {
		t.Errorf("%+v", st)
	}
}

func TestOverTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // has a certificate for tests
	defer certified.Close()
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"a": "1", "big": noise(3 << 20)})
	a, b := pair(t)
	client := tls.Client(a, &tls.Config{InsecureSkipVerify: true})
	server := tls.Server(b, certified.TLS)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, server, home) }()
	for range 2 {
		_, err := Send(t.Context(), client, Options{Src: Local(src), Dst: "d"})
		must(t, err)
		equal(t, src, filepath.Join(home, "d"))
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
