package porttest

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

func TestNoPortIsGivenTwice(t *testing.T) {
	var mu sync.Mutex
	given := map[int]bool{}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			port := Free(t)
			mu.Lock()
			defer mu.Unlock()
			if given[port] {
				t.Errorf("%d twice", port)
			}
			given[port] = true
		})
	}
	wg.Wait()
}

func TestAPortInUseIsNotGiven(t *testing.T) {
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", Free(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 200 {
		if port := Free(t); port == l.Addr().(*net.TCPAddr).Port {
			t.Fatal("it is in use")
		}
	}
}
