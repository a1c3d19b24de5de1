//go:build e2e && linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/diskspace/disktest"
	"github.com/skypilot-go/sky/test/harness"
)

func TestAServerThatDiesUnderACommandLosesNoLine(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "dev")
	c := w.command("exec", "dev", "--", "for i in $(seq 1 80); do echo line-$i-; sleep 0.1; done")
	var out syncBuffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "lines come", time.Minute, func() bool { return strings.Contains(out.String(), "line-5-") })
	w.killServer()
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for i := 1; i <= 80; i++ {
		if n := strings.Count(out.String(), fmt.Sprintf("line-%d-\n", i)); n != 1 {
			t.Errorf("line %d came %d times", i, n)
		}
	}
	wants(t, out.String(), "has died", "starting it again")
}

func TestCommandsSayThatAHangingServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("api", "start")
	pid := w.serverPID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	c := w.command("status")
	var said syncBuffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command says that it waits", time.Minute, func() bool {
		return strings.Contains(said.String(), "Waiting for the API server at http://127.0.0.1:")
	})
	if err := c.Wait(); err == nil { // that it gives up is the test: the server stays as it is
		t.Error("a status of a server that hangs")
	}
	wants(t, said.String(), "(no answer), ", "no answer for ", fmt.Sprintf("pid %d", pid), "sky api stop")
	w.sky("api", "stop") // also of one that hangs
	w.sky("status")
}

// onASmallDisk is a workstation whose home folder is a file system of its own.
func onASmallDisk(t *testing.T) (w *workstation, full string) {
	home, err := os.MkdirTemp("", "sky-home-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", home, "tmpfs", 0, "size=400m,mode=700"); err != nil {
		os.Remove(home)
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
		os.Remove(home)
	})
	in := harness.At(t, home)
	t.Cleanup(in.Close)
	return of(in), filepath.Join(home, "full")
}

func TestOnAFullDiskClustersAreShownAndEnded(t *testing.T) {
	w, full := onASmallDisk(t)
	w.sky("launch", "-y", "-d", "-c", "dev", "--", "echo hello; sleep 1000")
	w.sky("launch", "-y", "-c", "two", "--", "echo hello")
	eventually(t, "the reserve is there", time.Minute, func() bool {
		info, err := os.Stat(filepath.Join(w.home, ".sky/api_server/sky.db.reserve"))
		return err == nil && info.Size() > 0
	})
	disktest.Fill(t, full)
	wants(t, w.sky("status"), "dev", "two")
	wants(t, w.sky("queue", "dev"), "RUNNING")
	wants(t, w.sky("logs", "two", "1", "--no-follow"), "hello")
	w.fails(1, []string{"disk full: ", " free in ", "16 MB needed"}, "launch", "-y", "-c", "three", "--", "true")
	w.fails(1, []string{"disk full: "}, "exec", "dev", "--", "true")
	w.sky("cancel", "-y", "dev", "1")
	w.sky("stop", "-y", "two")
	w.sky("down", "-y", "dev")
	if s := w.status("three"); s != "" {
		t.Errorf("the refused launch left a cluster: %s", s)
	}
	w.sky("api", "stop")
	disktest.Fill(t, full)
	wants(t, w.sky("api", "start"), "disk full: ")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	w.sky("start", "-y", "two")
	if s := w.status("two"); s != "UP" {
		t.Errorf("two is %s", s)
	}
}

// The disk fills at random moments of launches, execs and downs, and has room
// again a moment later. Nothing is left half made, and nothing is lost.
func TestTheDiskFillsNowAndThen(t *testing.T) {
	w, full := onASmallDisk(t)
	r := seed(t)
	w.sky("api", "start")
	for round := range kills(t, 50) / 10 {
		name := fmt.Sprintf("c%d", round)
		for _, args := range [][]string{
			{"launch", "-y", "-d", "-c", name, "--", "echo hello"},
			{"exec", name, "-d", "--", "echo again"},
			{"down", "-y", name},
		} {
			c := w.command(args...)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			disktest.Fill(t, full)
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			if err := os.Remove(full); err != nil {
				t.Fatal(err)
			}
			err := c.Wait()
			status := w.status(name)
			t.Logf("%s %s: %v, now %q", args[0], name, err, status)
			switch {
			case status == "INIT":
				t.Errorf("%v left %s in INIT:\n%s", args, name, out.String())
			case args[0] == "launch" && err == nil && status != "UP", args[0] == "down" && err == nil && status != "":
				t.Errorf("%v went well, and %s is %q", args, name, status)
			case args[0] == "down" && err != nil && !strings.Contains(out.String(), "not found"):
				t.Errorf("%v: %v\n%s", args, err, out.String())
			}
			if err != nil && strings.Contains(out.String(), "500") {
				t.Errorf("%v: %s", args, out.String())
			}
		}
		w.run("down", "-y", name)
	}
}
