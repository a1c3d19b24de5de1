//go:build unix

package filesync

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// A recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	log bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.log.Write(p)
	return r.Conn.Write(p)
}

// record syncs a small tree and returns what each end wrote.
func recordSync(f *testing.F, change bool) (sent, answered []byte) {
	src, home := f.TempDir(), f.TempDir()
	write(f, src, map[string]string{"a": "1", "d/b": "22", "e/": "", "big": string(make([]byte, smallFile+1))})
	must(f, os.Symlink("a", filepath.Join(src, "l")))
	a, b := net.Pipe()
	client, server := &recorder{Conn: a}, &recorder{Conn: b}
	done := make(chan error)
	go func() { done <- Serve(context.Background(), server, home) }()
	for range 2 {
		client.log.Reset()
		server.log.Reset()
		_, err := Send(f.Context(), client, Options{Src: Local(src), Dst: "d"})
		must(f, err)
		if !change {
			break
		}
		for _, name := range []string{"a", "big"} {
			setTime(f, filepath.Join(src, name), 1e18)
		}
	}
	client.Close()
	must(f, <-done)
	return client.log.Bytes(), server.log.Bytes()
}

// FuzzServe writes anything to a receiver: it must end when the stream does,
// without having touched anything but its home.
func FuzzServe(f *testing.F) {
	for _, change := range []bool{false, true} {
		sent, _ := recordSync(f, change)
		f.Add(sent)
		f.Add(append(bytes.Clone(sent), sent...))
	}
	f.Add([]byte(opened("d", block{path: "", items: []item{{name: "l", kind: kindLink, target: ".."}}}, block{path: "l", items: []item{{name: "f"}}})))
	var s script = opened("d", block{items: []item{{name: "f", size: 1}}})
	s.frame(frameChunk, appendChunk(nil, &chunk{flags: chunkLast, hash: blake3.Sum256([]byte("x")), content: []byte("x")}))
	f.Add([]byte(s))
	f.Fuzz(func(t *testing.T, input []byte) {
		top := t.TempDir()
		home := filepath.Join(top, "home")
		must(t, os.Mkdir(home, 0o755))
		if h, err := readHello(helloOf(input)); err == nil && filepath.IsAbs(h.dst) {
			t.Skip("an absolute destination may be anywhere")
		}
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(input), io.Discard}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Serve(context.Background(), conn, home)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("Serve does not end")
		}
		names, err := os.ReadDir(top)
		if err != nil || len(names) != 1 {
			t.Errorf("it got out of its home: %v %v", names, err)
		}
		filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.Type()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
				t.Errorf("%s is %v", path, d.Type())
			}
			return nil
		})
	})
}

// helloOf finds a later opening, too: any may name an absolute destination.
func helloOf(input []byte) []byte {
	for r := bytes.NewReader(input); ; {
		kind, p, err := readFrame(r)
		if err != nil {
			return nil
		}
		if h, err := readHello(p); kind == frameHello && err == nil && filepath.IsAbs(h.dst) {
			return p
		}
	}
}

// FuzzSend answers anything to a sender: it must end when the stream does.
func FuzzSend(f *testing.F) {
	for _, change := range []bool{false, true} {
		_, answered := recordSync(f, change)
		f.Add(answered)
	}
	src := f.TempDir()
	write(f, src, map[string]string{"a": "1", "d/b": "22", "big": string(make([]byte, smallFile+1))})
	f.Fuzz(func(t *testing.T, input []byte) {
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(input), io.Discard}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Send(context.Background(), conn, Options{Src: Local(src), Dst: "d", Cache: filepath.Join(src, "..", "cache")})
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("Send does not end")
		}
	})
}
