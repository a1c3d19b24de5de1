package requests

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/trace"
)

func TestTheLogHoldsATimelineIfTheRequestAsksForOne(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("a")
	e.Handle("work", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
		c.Log.Printf("before")
		_ = trace.Do(ctx, "a step", func(ctx context.Context) error { return errors.New("x") })
		c.Log.Printf("after")
		return nil, nil
	})
	env.start(e)
	for body, want := range map[string][]string{
		`{}`:                  {"before", "after"},
		`{"timeline": false}`: {"before", "after"},
		`{"timeline": true}`:  {"before", "a step *errors.errorString", "after", "work "},
	} {
		r := wait(t, e, submit(t, e, "work", body).ID)
		var got []string
		for line := range strings.Lines(stream(t, e, r.ID, StreamOptions{})) {
			line = strings.TrimSuffix(line, "\n")
			if quoted, ok := strings.CutPrefix(line, payloadOpen); ok {
				var text string
				var s api.Span
				if json.Unmarshal([]byte(strings.TrimSuffix(quoted, payloadClose)), &text) != nil ||
					json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(text, "<sky_span>"), "</sky_span>")), &s) != nil || s.Start == 0 || s.Took < 0 {
					t.Fatalf("%q", line)
				}
				line = s.Name + " " + s.Failed
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", body, got)
		}
	}
}
