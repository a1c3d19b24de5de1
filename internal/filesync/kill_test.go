//go:build unix

package filesync

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// serveHome makes the test binary a receiver, so that one can be killed.
const serveHome = "FILESYNC_TEST_SERVE"

func serveIfAsked() {
	home := os.Getenv(serveHome)
	if home == "" {
		return
	}
	stdio := struct {
		io.Reader
		io.Writer
	}{os.Stdin, os.Stdout}
	if err := Serve(context.Background(), stdio, home); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// process runs a receiver of its own.
func process(t *testing.T, home string) (conn io.ReadWriter, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveHome+"="+home)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return struct {
			io.Reader
			io.Writer
		}{out, in}, sync.OnceFunc(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
}

func TestAKilledReceiverLeavesNoHalfFile(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("d%d/f%d", i%20, i)] = noise(1 + i%5000)
	}
	for i := range 10 {
		files[fmt.Sprintf("big%d", i)] = noise(1<<20 + i)
	}
	write(t, src, files)
	dst := filepath.Join(home, "x")
	want := snapshot(t, src)
	for try := range 8 {
		conn, kill := process(t, home)
		time.AfterFunc(time.Duration(10+try*15)*time.Millisecond, kill)
		if _, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x"}); err == nil {
			break // it was faster
		}
		kill()
		if _, err := os.Stat(dst); err != nil {
			continue
		}
		for path, text := range snapshot(t, dst) {
			if strings.HasPrefix(text, "-") && text != want[path] {
				t.Fatalf("%q is not what the source has", path)
			}
		}
	}
	conn, kill := process(t, home)
	defer kill()
	_, err := Send(t.Context(), conn, Options{Src: Local(src), Dst: "x"})
	must(t, err)
	equal(t, src, dst)
	for _, path := range unfinished(t, dst) {
		if strings.HasSuffix(path, partSuffix) {
			t.Errorf("left over: %s", path)
		}
	}
}
