package provision

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// past is an attempt that ended so long before noon.
func past(o cloud.Offer, ago time.Duration, outcome string) state.Attempt {
	a := state.Attempt{Offer: o, StartedAt: noon.Add(-ago - time.Minute), EndedAt: noon.Add(-ago), AttemptEnd: state.AttemptEnd{Outcome: outcome, Credentials: "key 1"}}
	if outcome != OK {
		b := ruledOut(o, refusalOf(outcome, o, cloud.Place{}))
		a.RuledOut = &b
	}
	return a
}

func TestRefusalsAreForgottenInTime(t *testing.T) {
	a, b, elsewhere := zone("a"), zone("b"), offerAt("gcp/us/a")
	for _, tt := range []struct {
		name  string
		past  []state.Attempt
		stamp string
		want  string // outcome of the refusal of zone a; "": none
	}{
		{"room, for minutes", []state.Attempt{past(a, 4*time.Minute, Capacity)}, "", Capacity},
		{"room, longer ago", []state.Attempt{past(a, 6*time.Minute, Capacity)}, "", ""},
		{"of a neighbour", []state.Attempt{past(b, time.Minute, Capacity)}, "", ""},
		{"quota, for hours, in the region", []state.Attempt{past(b, 2*time.Hour, Quota)}, "", Quota},
		{"quota, longer ago", []state.Attempt{past(b, 4*time.Hour, Quota)}, "", ""},
		{"quota, until something was had", []state.Attempt{past(b, 2*time.Hour, Quota), past(b, time.Hour, OK)}, "", ""},
		{"had before it was refused", []state.Attempt{past(b, 2*time.Hour, OK), past(b, time.Hour, Quota)}, "", Quota},
		{"credentials, as long as they are the same", []state.Attempt{past(b, 48*time.Hour, Credentials)}, "key 1", Credentials},
		{"credentials that have changed", []state.Attempt{past(b, time.Second, Credentials)}, "key 2", ""},
		{"credentials of which nothing is known, for minutes", []state.Attempt{past(b, 9*time.Minute, Credentials)}, "", Credentials},
		{"and no longer", []state.Attempt{past(b, 11*time.Minute, Credentials)}, "", ""},
		{"another cloud", []state.Attempt{past(elsewhere, time.Second, Credentials)}, "key 1", ""},
		{"what was called off", []state.Attempt{past(a, time.Second, Cancelled)}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Planner{lately: NewHistory(tt.past, noon).Refusals(func(string) string { return tt.stamp })}
			got := ""
			if r := p.Lately(&a); r != nil {
				got = r.Outcome
			}
			if got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDeadlinesAreLearned(t *testing.T) {
	many := func(nodes int, attempts []state.Attempt) []state.Attempt {
		for i := range attempts {
			attempts[i].Nodes = nodes
		}
		return attempts
	}
	launches := func(machine string, outcome string, took ...time.Duration) []state.Attempt {
		var out []state.Attempt
		for _, d := range took {
			a := past(cloud.Offer{Place: cloud.Place{Cloud: "aws"}, InstanceType: machine}, time.Hour, outcome)
			a.Nodes = 4
			a.Steps = []state.Step{{Name: stepLaunch, Took: d, OK: outcome == OK}}
			out = append(out, a)
		}
		return out
	}
	min, quick := time.Minute, 10*time.Second
	for _, tt := range []struct {
		name            string
		past            []state.Attempt
		deadline, usual time.Duration
	}{
		{"nothing is known", nil, 15 * min, 2 * min},
		{"too little is known", launches("p4", OK, min, min, min, min), 15 * min, 2 * min},
		{"three times the usual", launches("p4", OK, min, 2*min, 3*min, 3*min, 4*min), 12 * min, 4 * min},
		{"one in ten may be slow", launches("p4", OK, min, min, min, min, min, min, min, min, min, 40*min), 3 * min, min},
		{"never below the bound", launches("p4", OK, quick, quick, quick, quick, quick), 2 * min, quick},
		{"never above it", launches("p4", OK, 30*min, 30*min, 30*min, 30*min, 30*min), time.Hour, 30 * min},
		{"another machine of the cloud tells what is usual, and cuts nothing short", launches("p5", OK, min, min, min, min, min), 15 * min, min},
		{"but that it may take long", launches("p5", OK, 7*min, 7*min, 7*min, 7*min, 7*min), 21 * min, 7 * min},
		{"more machines are a lesson", many(8, launches("p4", OK, min, min, min, min, min)), 3 * min, min},
		{"fewer may be quicker", many(3, launches("p4", OK, min, min, min, min, min)), 15 * min, min},
		{"but its own is better", append(launches("p5", OK, quick, quick, quick, quick, quick), launches("p4", OK, 4*min, 4*min, 4*min, 4*min, 4*min)...), 12 * min, 4 * min},
		{"what was cut off raises the deadline, not what is usual", append(launches("p4", OK, 2*min, 2*min, 2*min, 2*min, 2*min), launches("p4", Timeout, 6*min, 6*min)...), 18 * min, 2 * min},
		{"failures say nothing", launches("p4", Capacity, quick, quick, quick, quick, quick), 15 * min, 2 * min},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, o := NewHistory(tt.past, noon), cloud.Offer{Place: cloud.Place{Cloud: "aws"}, InstanceType: "p4"}
			if got := h.Deadline(stepLaunch, o, 4); got != tt.deadline {
				t.Errorf("deadline %v, want %v", got, tt.deadline)
			}
			if got := h.Usual(stepLaunch, o); got != tt.usual {
				t.Errorf("usual %v, want %v", got, tt.usual)
			}
		})
	}
}

func TestAvailabilityIsListed(t *testing.T) {
	a, b := zone("a"), zone("b")
	b.Accelerators = map[string]float64{"A100": 8}
	h := NewHistory([]state.Attempt{
		past(a, 3*time.Hour, OK), past(b, 2*time.Hour, OK), past(a, time.Minute, Capacity), past(a, 0, Throttled),
	}, noon)
	got := h.Availability(AvailabilityFilter{}, 0, nil)
	if len(got) != 2 || got[0].Zone != "b" || got[1].Zone != "a" {
		t.Fatalf("listed %+v", got)
	}
	x := got[1]
	if x.Tries != 2 || x.Had != 1 || x.Median != 60 || x.LastOutcome != Throttled || !x.PassedOver || x.Chance >= got[0].Chance {
		t.Errorf("zone a: %+v", x)
	}
	for _, f := range []AvailabilityFilter{{Accelerator: "a100"}, {Cloud: "aws", Region: "east", InstanceType: "p4", Accelerator: "A100"}} {
		if got := h.Availability(f, 0, nil); len(got) != 1 || got[0].Zone != "b" {
			t.Errorf("%+v lists %+v", f, got)
		}
	}
	if got := h.Availability(AvailabilityFilter{Region: "west"}, 0, nil); len(got) != 0 {
		t.Errorf("west: %+v", got)
	}
}
