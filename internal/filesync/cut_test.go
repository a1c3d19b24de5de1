//go:build unix

package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A tap is a connection that does something on the way.
type tap struct {
	net.Conn
	onRead, onWrite func()
	left            atomic.Int64 // bytes until the connection is cut; not if it started at 0
	cuts            bool
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.onRead != nil {
		c.onRead()
	}
	return n, err
}

func (c *tap) Write(p []byte) (int, error) {
	if c.onWrite != nil {
		c.onWrite()
	}
	if !c.cuts {
		return c.Conn.Write(p)
	}
	if left := c.left.Add(-int64(len(p))); left < 0 {
		n, _ := c.Conn.Write(p[:max(0, left+int64(len(p)))])
		c.Conn.Close()
		return n, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

func noise(n int) string {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// unfinished lists what a receiver has not finished.
func unfinished(t checker, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && isPartName(d.Name()) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestCutAnywhere cuts the connection after a random number of bytes, again
// and again, until a sync gets through.
func TestCutAnywhere(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	files := map[string]string{"big1": noise(3 << 20), "d/big2": noise(1<<20 + 1), "text": strings.Repeat("text ", 300_000)}
	for i := range 300 {
		files[fmt.Sprintf("d/s%d", i)] = noise(i * 10)
	}
	write(t, src, files)
	var size int64
	for _, content := range files {
		size += int64(len(content))
	}
	dst := filepath.Join(home, "d")
	names := snapshot(t, src)
	r := rand.New(rand.NewPCG(3, 4))
	var wire int64
	for try := 0; ; try++ {
		conn := &tap{Conn: serve(t, home), cuts: true}
		conn.left.Store(r.Int64N(1 << 20))
		st, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"})
		wire += st.WireBytes
		if err == nil {
			break
		}
		if try == 100 {
			t.Fatalf("no sync gets through: %v", err)
		}
		time.Sleep(time.Millisecond) // the receiver ends by itself
		if _, err := os.Stat(dst); err != nil {
			continue
		}
		for path, text := range snapshot(t, dst) {
			if strings.HasPrefix(text, "-") && names[path] != text && !isPartName(filepath.Base(path)) {
				t.Fatalf("after a cut %q is not what the source has", path)
			}
		}
	}
	equal(t, src, dst)
	if wire > size*3 {
		t.Errorf("%d bytes were written for %d: cut files are not continued", wire, size)
	}
	if left := unfinished(t, home); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestACutFileGoesOn(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"big": noise(8 << 20)})
	conn := &tap{Conn: serve(t, home), cuts: true}
	conn.left.Store(6 << 20)
	if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"}); err == nil {
		t.Fatal("a cut connection goes unnoticed")
	}
	var parts []string
	for range 1000 { // the receiver takes in what is on the way
		if parts = unfinished(t, home); len(parts) == 1 {
			if info, err := os.Stat(parts[0]); err == nil && info.Size() > 5<<20 {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	st, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d"})
	must(t, err)
	equal(t, src, filepath.Join(home, "d"))
	if st.SentBytes > 3<<20+chunkBytes {
		t.Errorf("%d bytes sent, though most of the file was there", st.SentBytes)
	}
	// A part that is not the start of the file is not built upon.
	must(t, os.Remove(filepath.Join(home, "d/big")))
	f, err := openPath(filepath.Join(src, "big"))
	must(t, err)
	it, err := f.stat()
	f.close()
	must(t, err)
	it.name = "big"
	write(t, home, map[string]string{"d/" + partName(&it): "something else"})
	st, err = Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "d"})
	must(t, err)
	equal(t, src, filepath.Join(home, "d"))
	if st.SentBytes != 8<<20 {
		t.Errorf("%d bytes sent", st.SentBytes)
	}
}

func TestLeftoversOfADeadSyncAreRemoved(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"d/big": noise(4 << 20)})
	conn := &tap{Conn: serve(t, home), cuts: true}
	conn.left.Store(2 << 20)
	if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x"}); err == nil {
		t.Fatal("a cut connection goes unnoticed")
	}
	waitFor(t, func() bool { return len(unfinished(t, home)) == 1 })
	must(t, os.Remove(filepath.Join(src, "d/big")))
	write(t, src, map[string]string{"other": "1"})
	_, err := Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "x"})
	must(t, err)
	equal(t, src, filepath.Join(home, "x")) // also the time of the folder that it was in
	if left := unfinished(t, home); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if names, _ := filepath.Glob(filepath.Join(stateDir(home), "*"+journalSuffix)); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("waited in vain")
}

func TestSyncsAtTheSameTime(t *testing.T) {
	home := t.TempDir()
	var versions []map[string]string
	var wg sync.WaitGroup
	for v := range 4 {
		src := t.TempDir()
		files := map[string]string{"big": noise(1<<20 + v), "same": noise(2 << 20)}
		for i := range 200 {
			files[fmt.Sprintf("d%d/f%d", i%7, i)] = strings.Repeat(fmt.Sprint(v), i*20)
		}
		versions = append(versions, files)
		write(t, src, files)
		setTime(t, filepath.Join(src, "same"), 1e18)
		conn := serve(t, home)
		wg.Go(func() {
			for range 3 {
				if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "d"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for name := range versions[0] {
		data, err := os.ReadFile(filepath.Join(home, "d", name))
		must(t, err)
		known := false
		for _, v := range versions {
			known = known || v[name] == string(data)
		}
		if !known {
			t.Errorf("%q is a mixture", name)
		}
	}
	if left := unfinished(t, home); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A receiver whose connection broke may still be at work when the next sync of
// the same folder comes: that waits, however long it takes.
func TestASyncWaitsForTheOneBefore(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"d/a": "1"})
	unlock, err := lockDest(t.Context(), stateDir(home), filepath.Join(home, "x"), nil)
	must(t, err)
	conn := serve(t, home)
	done := make(chan error, 1)
	go func() {
		_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x", Timeout: time.Minute})
		done <- err
	}()
	_, err = Send(t.Context(), serve(t, home), Options{Src: Local(src), Dst: "other"}) // nothing to do with it
	must(t, err)
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if _, err := os.Stat(filepath.Join(home, "x")); err == nil {
		t.Error("it writes while another does")
	}
	unlock()
	must(t, <-done)
	equal(t, src, filepath.Join(home, "x"))

	unlock, err = lockDest(t.Context(), stateDir(home), filepath.Join(home, "x"), nil)
	must(t, err)
	defer unlock()
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errAborted)
	if _, err := lockDest(ctx, stateDir(home), filepath.Join(home, "x"), func() {}); !errors.Is(err, errAborted) {
		t.Errorf("a sync that ends while it waits: %v", err)
	}
}
