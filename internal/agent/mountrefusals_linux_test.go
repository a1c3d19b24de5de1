package agent

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/storage"
)

// Programs show the number of an error; the log of a job says why its mounts refused a call.
func TestLogsOfJobsSayWhatMountsRefused(t *testing.T) {
	b := newMountBed(t)
	r := b.request()
	r.Mounts[0].Spec.Mode = agentapi.MountDirect
	if _, err := b.head.Mounts(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, run string
		before    func()
		status    api.JobStatus
		says      []string // in a line of sky's
	}{
		{"what buckets do not have", "echo a > ~/m/a; ln ~/m/a ~/m/b || true", nil, api.JobSucceeded, []string{"/m/b: link failed: ", "no hard links"}},
		{"another job", "cat ~/m/a", nil, api.JobSucceeded, nil},
		{"a job that fails by itself", "exit 3", nil, api.JobFailed, nil},
		{"a close that failed", "echo x > ~/m/x; exit 4", func() { b.refuse.Store(http.StatusForbidden) }, api.JobFailed, []string{"not stored: ", "/m/x: ", "grant s3:PutObject"}},
		{"a bucket that is gone", "echo y > ~/m/y || exit 5", func() {
			b.refuse.Store(0)
			bucket := b.store.Bucket("bucket")
			if err := bucket.Remove(t.Context(), []storage.ID{{Key: "a"}}); err != nil {
				t.Fatal(err)
			}
			if err := bucket.Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, api.JobFailed, []string{"/m/y: ", " failed: ", "the bucket s3://bucket does not exist"}},
	} {
		if c.before != nil {
			c.before()
		}
		id := b.submit(agentapi.JobSpec{Run: c.run})
		if job := b.awaitEnd(id); job.Status != c.status {
			t.Errorf("%s: %+v", c.name, job)
		}
		var lines []string
		for line := range strings.Lines(b.follow(id)) {
			if strings.HasPrefix(line, "skypilot: ") {
				lines = append(lines, line)
			}
		}
		if len(c.says) == 0 && len(lines) > 0 {
			t.Errorf("%s: the log says %q", c.name, lines)
		}
		for _, text := range c.says {
			if !strings.Contains(strings.Join(lines, ""), text) {
				t.Errorf("%s: the log does not say %q: %q", c.name, text, lines)
			}
		}
	}
}
