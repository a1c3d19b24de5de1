package provision

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestTellingWhatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, end := ReportProgress(t.Context(), &out, "stopping cluster c")
		cloud.ReportWait(ctx, "the instances to stop")
		cloud.ReportWait(ctx, "the instances to stop")
		time.Sleep(reportEvery + time.Second)
		// A step that says nothing by itself leaves the word to who listens already.
		_, _ = run(ctx, step{name: stepStop, limit: time.Minute}, func(ctx context.Context) (int, error) {
			cloud.ReportWait(ctx, "one more")
			return 0, nil
		})
		time.Sleep(reportEvery)
		end()
		time.Sleep(time.Hour)
		want := []string{
			"Stopping cluster c: waiting for the instances to stop",
			"… still stopping cluster c, waiting for the instances to stop: 30s so far",
			"Stopping cluster c: waiting for one more",
			"… still stopping cluster c, waiting for one more: 1m 00s so far",
		}
		if got := strings.TrimSpace(out.String()); got != strings.Join(want, "\n") {
			t.Errorf("told:\n%s", got)
		}
	})
	ctx, end := ReportProgress(t.Context(), nil, "stopping")
	defer end()
	if ctx != t.Context() {
		t.Error("somebody listens for nobody")
	}
}
