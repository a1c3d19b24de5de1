package probe

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var settings = Settings{Interval: 10 * time.Second, InitialDelay: 60 * time.Second, FailureSpan: 30 * time.Second}

// Each letter is an answer, ten seconds after the one before: o good, x bad.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name, answers string
		want          Verdict
	}{
		{"ready at once", "o", Ready},
		{"not yet", "xxx", Starting},
		{"just in time", "xxxxxxx", Starting},
		{"too late", "xxxxxxxx", TooLate},
		{"ready in the last moment", "xxxxxxxo", Ready},
		{"the initial delay ends with the first success", "xxxxxoxxx", NotReady},
		{"one failure", "ox", NotReady},
		{"failures that do not span long enough", "oxxx", NotReady},
		{"failures that do", "oxxxx", Unhealthy},
		{"broken by a success", "oxxxoxxx", NotReady},
		{"back", "oxxxo", Ready},
	} {
		h, v := History{}, Verdict("")
		for i, a := range c.answers {
			h, v = h.After(settings, Result{OK: a == 'o', Reason: "refused"}, noon.Add(time.Duration(i)*10*time.Second))
		}
		if v != c.want {
			t.Errorf("%s: %s, want %s", c.name, v, c.want)
		}
		if text := h.Explain(settings); (text == "") != (v == Ready) {
			t.Errorf("%s: says %q", c.name, text)
		}
	}
}

func TestWhenToProbe(t *testing.T) {
	if due := (History{}).Due(settings); !due.IsZero() {
		t.Errorf("first probe at %v", due)
	}
	h, _ := History{}.After(settings, Result{}, noon)
	if due := h.Due(settings); !due.Equal(noon.Add(10 * time.Second)) {
		t.Errorf("next probe at %v", due)
	}
	own := Settings{Path: "/own", Timeout: 1, InitialDelay: 2, Interval: 3, FailureSpan: 4}
	latest := Settings{Path: "/latest", Timeout: 5, InitialDelay: 6, Interval: 7, FailureSpan: 8}
	if got, want := own.PacedBy(latest), (Settings{Path: "/own", Timeout: 1, InitialDelay: 2, Interval: 7, FailureSpan: 8}); !reflect.DeepEqual(got, want) {
		t.Errorf("an older version is probed by %+v", got)
	}
}

// What is stored goes on as if it had never been stored, and the verdict is that of the history.
func TestHistoriesAreStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		at := noon
		ready := false
		for range rapid.IntRange(1, 40).Draw(t, "probes") {
			at = at.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "gap")) * time.Second)
			r := Result{OK: rapid.Bool().Draw(t, "ok"), Timeout: rapid.Bool().Draw(t, "timeout"), Reason: "x"}
			ready = ready || r.OK
			var v Verdict
			h, v = h.After(settings, r, at)
			if v != h.Verdict(settings) || r.OK != (v == Ready) {
				t.Fatalf("%+v is %s and %s", h, v, h.Verdict(settings))
			}
			if ready != (v == Ready || v == NotReady || v == Unhealthy) {
				t.Fatalf("%+v: %s", h, v)
			}
			text, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			var back History
			if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, h) {
				t.Fatalf("%s is read as %+v, %v", text, back, err)
			}
		}
	})
}
