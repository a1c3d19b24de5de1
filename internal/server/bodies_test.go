package server

import (
	"strings"
	"testing"
	"time"
)

func TestLargeBodiesWaitForEachOtherAndSmallOnesDoNot(t *testing.T) {
	env := newTestEnv(t)
	if !largeBodies.TryAcquire(bodiesAtOnce) {
		t.Fatal("a body is still being read")
	}
	was := bodyWait
	bodyWait = 50 * time.Millisecond
	large := `{"cluster_names":["` + strings.Repeat("x", 2*smallBody) + `"]}`
	if r := env.call(post, "/status", large); r.status != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("a large body: %d %.100s", r.status, r.body)
	}
	if r := env.call(post, "/status", `{}`); r.status != 200 {
		t.Errorf("a small body: %d %.100s", r.status, r.body)
	}
	bodyWait = was
	room := int64(len(large))
	largeBodies.Release(room)
	defer largeBodies.Release(bodiesAtOnce - room)
	for range 3 { // the room of one is given to the next
		if r := env.call(post, "/status", large); r.status != 200 {
			t.Fatalf("afterwards: %d %.100s", r.status, r.body)
		}
	}
}
