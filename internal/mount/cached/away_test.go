//go:build linux

package cached

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// A store that is away for ten minutes costs some tries and no file, and a minute at most after
// it is back.
func TestAStoreThatIsAwayForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &moody{Bucket: bucket(t)}
		b.fail(&storage.UnavailableError{Err: errors.New("away")})
		v := opened(t, b, Options{Retry: time.Second})
		large := strings.Repeat("x", smallUpload+100)
		write(t, v, "large", large)
		for i := range 10 {
			write(t, v, "small", strings.Repeat("x", i+1))
			time.Sleep(time.Minute)
		}
		if n := b.puts.Load(); n < 20 || n > 100 {
			t.Errorf("it was tried %d times", n)
		}
		if q := v.Queue(); len(q) != 2 || q[0].Error == "" {
			t.Errorf("the queue: %+v", q)
		}
		b.fail(nil)
		back := time.Now()
		for !v.Settled() {
			if time.Since(back) > time.Hour {
				t.Fatalf("it is still not uploaded: %+v", v.Queue())
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(back); took > maxWait+2*time.Second {
			t.Errorf("it went on %v after the store was back", took)
		}
		if got := object(t, b, "large"); got != large {
			t.Errorf("the bucket has %d bytes of the large file", len(got))
		}
		if got := object(t, b, "small"); got != strings.Repeat("x", 10) {
			t.Errorf("the bucket has %q", got)
		}
		v.Close()
	})
}
