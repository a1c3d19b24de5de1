//go:build unix

package agent

import (
	"net"
	"testing"
)

func TestATakenPortIsPassedBy(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ln, err := listen(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ln.Addr().String() == taken.Addr().String() {
		t.Errorf("listens on %s twice", ln.Addr())
	}
	if _, err := listen("127.0.0.1:none"); err == nil {
		t.Error("a port that is none was accepted")
	}
}
