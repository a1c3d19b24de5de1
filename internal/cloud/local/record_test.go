package local

import (
	"net"
	"testing"
)

func TestANodeGetsTheSameAddressAgainUnlessItIsTaken(t *testing.T) {
	first := pickAddress(id("h1"), 0, nil)
	if again := pickAddress(id("h1"), 0, nil); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if other := pickAddress(id("h1"), 1, nil); other == first {
		t.Errorf("both nodes have %s", first)
	}
	second := pickAddress(id("h1"), 0, map[string]bool{first: true})
	third := pickAddress(id("h1"), 0, map[string]bool{first: true, second: true})
	if second == first || third == first || third == second {
		t.Errorf("%s, %s, %s", first, second, third)
	}
	for _, ip := range []string{first, second, third} {
		if !net.ParseIP(ip).IsLoopback() {
			t.Errorf("%s leaves this machine", ip)
		}
	}
}

func TestAddressesOfOtherMachinesCannotBeUsed(t *testing.T) {
	if usable("192.0.2.1") { // for documentation: nobody has it
		t.Error("it is said to be this machine's")
	}
}
