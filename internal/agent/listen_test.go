//go:build unix

package agent

import (
	"net"
	"os/exec"
	"testing"
	"time"
)

func TestATakenPortIsPassedBy(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ln, err := listen(t.Context(), taken.Addr().String(), false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ln.Addr().String() == taken.Addr().String() {
		t.Errorf("listens on %s twice", ln.Addr())
	}
	if _, err := listen(t.Context(), "127.0.0.1:none", true, time.Minute); err == nil {
		t.Error("a port that is none was accepted")
	}
}

// A process that was being started when the agent ended has a copy of its
// socket for a while.
func TestAnAgentWaitsForThePortOfTheOneBeforeIt(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	address := before.Addr().String()
	copied, err := before.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat")
	child.ExtraFiles = append(child.ExtraFiles, copied)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	copied.Close()
	before.Close()
	moved, err := listen(t.Context(), address, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	if moved.Addr().String() == address {
		t.Fatal("the child has no copy of the socket")
	}
	time.AfterFunc(50*time.Millisecond, func() {
		in.Close()
		_ = child.Wait()
	})
	ln, err := listen(t.Context(), address, true, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ln.Addr().String() != address {
		t.Errorf("listens on %s, not on %s as before", ln.Addr(), address)
	}
}
