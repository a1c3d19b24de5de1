package execution

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// said is an error as clients get it; it fails the test if it is of no class.
func said(t *testing.T, err error) *api.Error {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		t.Fatalf("clients cannot tell what this is: %v", err)
	}
	return e
}

// A launch that failed says what is left, what may be tried, and whether waiting helps.
func TestAFailedLaunchSaysWhatIsLeftAndWhatToDo(t *testing.T) {
	c := &state.Cluster{Name: "dev", NumNodes: 2, StatusUpdatedAt: time.Now(), Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "east"}, InstanceType: "p4"}}
	unplaced := func(outcome string) error {
		return &provision.UnplacedError{Cluster: "dev", Nodes: 2, Attempts: []*provision.AttemptError{
			{Offer: c.Offer, Outcome: outcome, Err: errors.New("first")}, {Offer: c.Offer, Outcome: outcome, Err: errors.New("second")}}}
	}
	lost := &provision.LostError{Cluster: "dev", Err: &provision.GangError{Want: 2, Running: 1, Gone: 1, Reason: "taken back"}}
	for _, tt := range []struct {
		name    string
		err     error
		keep    bool
		kind    string
		says    string
		hint    []string
		history int
		final   bool // no other place will be tried
	}{
		{"no room", unplaced(provision.Capacity), false, api.ErrResourcesUnavailable, "in any of 2 places", []string{"sky launch --retry-until-up"}, 2, false},
		{"refused for ever", unplaced(provision.Invalid), false, api.ErrResourcesUnavailable, "in any of 2 places", nil, 2, false},
		{"no room where its disks are", unplaced(provision.Capacity), true, api.ErrResourcesUnavailable, "in any of 2 places", []string{"sky start dev", "sky down dev"}, 2, true},
		{"machines lost", lost, false, api.ErrResourcesUnavailable, "taken back", []string{"sky launch --retry-until-up"}, 1, false},
		{"machines lost where its disks are", lost, true, api.ErrResourcesUnavailable, "taken back", []string{"sky start dev"}, 1, true},
		{"something with a class", &api.Error{Type: api.ErrValue, Message: "no such option"}, false, api.ErrValue, "no such option", nil, -1, false},
		{"anything else", errors.New("broken"), false, api.ErrRuntime, `Launching cluster "dev" failed: broken`, nil, -1, false},
		{"anything else with machines", errors.New("broken"), true, api.ErrRuntime, "broken", []string{"may run and cost money", "sky start dev", "sky stop dev"}, -1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := said(t, new(Executor).launchError(c, tt.err, tt.keep))
			if e.Type != tt.kind || !strings.Contains(e.Message, tt.says) {
				t.Errorf("%s: %s", e.Type, e.Message)
			}
			for _, want := range tt.hint {
				if !strings.Contains(e.Hint, want) {
					t.Errorf("hint: %q, want %q", e.Hint, want)
				}
			}
			if len(tt.hint) == 0 && e.Hint != "" {
				t.Errorf("hint: %q", e.Hint)
			}
			if tt.history < 0 {
				if e.Attributes != nil || e.Details != nil {
					t.Errorf("%v, %v", e.Attributes, e.Details)
				}
				return
			}
			history, _ := e.Attributes["failover_history"].([]string)
			if len(history) != tt.history || e.Attributes["no_failover"] != tt.final || len(e.Details) == 0 {
				t.Errorf("%v, %v", e.Attributes, e.Details)
			}
		})
	}
}

// Old clients read the history of a failed launch as a list, also when it is empty.
func TestTheHistoryOfAFailureIsAListAlways(t *testing.T) {
	e := unavailable(errors.New("nothing"), nil)
	if h, ok := e.Attributes["failover_history"].([]string); !ok || h == nil || len(h) > 0 || e.Attributes["no_failover"] != false {
		t.Errorf("%+v", e.Attributes)
	}
	if e := unavailable(errors.New("nothing"), []string{"a"}); !slices.Equal(e.Attributes["failover_history"].([]string), []string{"a"}) {
		t.Errorf("%+v", e.Attributes)
	}
}

func TestAJobThatIsNotTakenSaysWhyAndWhatToDo(t *testing.T) {
	c := &state.Cluster{Name: "dev"}
	of := func(code agentapi.ErrorCode) error {
		return fmt.Errorf("asking: %w", &agentapi.Error{Code: code, Message: "in its words"})
	}
	for _, tt := range []struct {
		name             string
		err              error
		kind, says, hint string
	}{
		{"an invalid job", of(agentapi.CodeInvalid), api.ErrValue, `Cluster "dev" does not take the job: in its words`, "sky down dev"},
		{"a full disk", of(agentapi.CodeNoSpace), api.ErrRuntime, `The disk of cluster "dev" is full: in its words`, "sky ssh dev"},
		{"a stale epoch", of(agentapi.CodeStaleEpoch), api.ErrRuntime, "was launched anew meanwhile", ""},
		{"another refusal", of(agentapi.CodeInternal), api.ErrRuntime, "could not be submitted", "sky status --refresh dev"},
		{"no answer", errors.New("EOF"), api.ErrRuntime, `The job could not be submitted to cluster "dev": EOF`, "sky status --refresh dev"},
	} {
		e := said(t, submitError(c, tt.err))
		if e.Type != tt.kind || !strings.Contains(e.Message, tt.says) || !strings.Contains(e.Hint, tt.hint) || tt.hint == "" && e.Hint != "" || !errors.Is(e, tt.err) {
			t.Errorf("%s: %s: %s (%s)", tt.name, e.Type, e.Message, e.Hint)
		}
	}
}

func TestFilesThatCannotBeCopiedAreToldWithTheirName(t *testing.T) {
	s := &submission{cluster: &state.Cluster{Name: "dev"}}
	src := filesync.Local("/home/ann/data")
	for _, tt := range []struct {
		name             string
		err              error
		kind, says, hint string
	}{
		{"a full disk", fmt.Errorf("copying: %w", &filesync.NoSpaceError{Path: "big"}), api.ErrRuntime, `The disk of cluster "dev" is full`, "sky ssh dev"},
		{"a file that is gone", fs.ErrNotExist, api.ErrFileNotFound, "/home/ann/data does not exist", ""},
		{"anything else", errors.New("broken"), api.ErrRuntime, "Copying /home/ann/data failed: broken", ""},
	} {
		e := said(t, s.syncError(filesync.Options{Src: src}, tt.err))
		if e.Type != tt.kind || !strings.Contains(e.Message, tt.says) || !strings.Contains(e.Hint, tt.hint) || tt.hint == "" && e.Hint != "" {
			t.Errorf("%s: %s: %s (%s)", tt.name, e.Type, e.Message, e.Hint)
		}
	}
}

// A plan that does not exist tells programs, for each cloud, what is in the way and
// what would do instead.
func TestAPlanThatDoesNotExistTellsWhatIsNear(t *testing.T) {
	offers := func(name string, cpus float64) optimizer.Source {
		return optimizer.OffersSource(name, strings.ToUpper(name), []cloud.Offer{{Place: cloud.Place{Region: "r", Zone: "z"}, InstanceType: "small", CPUs: cpus, MemoryGiB: 32, HourlyPrice: 2}}, nil)
	}
	plan := func(text string) error {
		dag, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = optimizer.Optimize(optimizer.Problem{Dag: dag, Minimize: optimizer.Cost, Sources: []optimizer.Source{offers("aws", 8), offers("gcp", 4)}})
		if err == nil {
			t.Fatalf("%s is planned", text)
		}
		return planError(err)
	}
	e := said(t, plan("num_nodes: 3\nresources: {cpus: 16+}\nrun: x\n"))
	reasons, _ := e.Details["reasons"].([]map[string]any)
	if e.Type != api.ErrResourcesUnavailable || e.Details["kind"] != api.KindNoFeasibleResources || len(reasons) != 2 {
		t.Fatalf("%s: %v", e.Type, e.Details)
	}
	if h, ok := e.Attributes["failover_history"].([]string); !ok || h == nil {
		t.Errorf("%v", e.Attributes)
	}
	for i, name := range []string{"aws", "gcp"} {
		r := reasons[i]
		near, _ := r["nearest"].(api.PlanOffer)
		if r["cloud"] != name || r["constraint"] == "" || r["reason"] == "" || r["change"] == "" || near.TotalHourlyPrice != 6 || near.Zone == nil || *near.Zone != "z" {
			t.Errorf("%+v", r)
		}
	}
	e = said(t, plan("resources: {cpus: 16+}\nrun: x\n"))
	if near := e.Details["reasons"].([]map[string]any)[0]["nearest"].(api.PlanOffer); near.TotalHourlyPrice != 2 {
		t.Errorf("of one node: %+v", near)
	}
	e = said(t, plan("resources: {accelerators: 'A100:8'}\nrun: x\n"))
	for _, r := range e.Details["reasons"].([]map[string]any) {
		if _, has := r["nearest"]; has {
			t.Errorf("no machine with CPUs is near an accelerator: %+v", r)
		}
	}
	if e := said(t, planError(errors.New("a circle"))); e.Type != api.ErrValue || e.Message != "a circle" || e.Details != nil {
		t.Errorf("%+v", e)
	}
}

// A mistake in a task has the class that its check gave it, and else is a wrong value.
func TestAMistakeInATaskHasItsClass(t *testing.T) {
	for _, text := range []string{"run: x\nresurces: {}\n", "run: [\n"} {
		_, err := parse(text)
		if e := said(t, err); e.Type != api.ErrValue || e.Message == "" {
			t.Errorf("%q: %+v", text, e)
		}
	}
	if e := said(t, TaskError(task.Errors{{Message: "one"}, {Message: "two", Class: api.ErrNotSupported}})); e.Type != api.ErrNotSupported {
		t.Errorf("%+v", e)
	}
	if _, err := oneTask("name: a\n---\nrun: x\n---\nrun: y\n", "exec"); !strings.Contains(said(t, err).Message, "sky exec runs a single task, but this file describes 2") || !strings.Contains(said(t, err).Hint, "sky jobs launch") {
		t.Errorf("%v", err)
	}
}

// A name is checked with a task where it comes with one.
func TestATaskIsCheckedWithItsName(t *testing.T) {
	x := New(Deps{Log: slog.New(slog.DiscardHandler)})
	named := func(name string) *api.RequestOptions { return &api.RequestOptions{ClusterName: &name} }
	for _, tt := range []struct {
		name, dag string
		options   *api.RequestOptions
		want      string // class; "": it is fine
	}{
		{"a task", "run: x\n", nil, ""},
		{"options without a name", "run: x\n", &api.RequestOptions{}, ""},
		{"a task with a name", "run: x\n", named("dev"), ""},
		{"a bad name", "run: x\n", named("Übel!"), api.ErrInvalidClusterName},
		{"a bad task", "run: [\n", named("dev"), api.ErrValue},
		{"a task that cannot run yet", "workdir: {url: 'https://example.com/r.git'}\nrun: x\n", nil, api.ErrNotSupported},
		{"the second of two tasks", "name: p\n---\nrun: x\n---\nworkdir: {url: 'https://example.com/r.git'}\nrun: x\n", nil, api.ErrNotSupported},
	} {
		err := x.Validate(t.Context(), api.DagBody{Dag: tt.dag, RequestOptions: tt.options})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || said(t, err).Type != tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
