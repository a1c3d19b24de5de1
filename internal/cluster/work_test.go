//go:build unix

package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

const talk = "name: talk\nresources: {infra: fluffycloud, ports: [80, 8000-8001]}\nrun: |\n  echo first\n  sleep 5m\n  echo second\n  exit 3\n"

// talking is an installation with a cluster "dev" whose job talks.
func talking(t *testing.T) (*testbed.Bed, *testbed.Server) {
	t.Helper()
	b := testbed.New(t)
	s := b.Boot(failpoint.Endless)
	if _, err := s.Launch(testbed.NewRequest(), "dev", talk); err != nil {
		t.Fatal(err)
	}
	return b, s
}

// logs is what a stream says, its end and where it began.
func logs(s *testbed.Server, body api.LogsBody, at *cluster.LogPosition) (text string, code int, began cluster.LogPosition, err error) {
	var out bytes.Buffer
	code, err = s.Clusters.Logs(s.Context(), body, at, func(p cluster.LogPosition) error { began = p; return nil }, &out)
	return out.String(), code, began, err
}

func TestALogIsFollowedToItsEndThroughACrashOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := talking(t)
		s.Watch()
		go func() {
			time.Sleep(time.Minute)
			b.Head("dev").Crash()
		}()
		text, code, began, err := logs(s, api.LogsBody{ClusterName: "dev"}, nil)
		want := "first\nsecond\n✗ Job finished (status: FAILED).\n"
		if err != nil || text != want || code != api.JobFailed.ExitCode() {
			t.Errorf("%q, exit %d, %v", text, code, err)
		}
		if again, _, _, err := logs(s, api.LogsBody{ClusterName: "dev"}, &began); err != nil || again != want {
			t.Errorf("repeated: %q, %v", again, err)
		}
	})
}

func TestALogThatIsNotFollowedIsWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := talking(t)
		time.Sleep(time.Second)
		no, other := false, 7
		if text, code, _, err := logs(s, api.LogsBody{ClusterName: "dev", Follow: &no}, nil); err != nil || text != "first\n" || code != 0 {
			t.Errorf("%q, exit %d, %v", text, code, err)
		}
		if text, code, _, err := logs(s, api.LogsBody{ClusterName: "dev", JobID: &other}, nil); err != nil || code != api.ExitJobNotFound || !strings.Contains(text, "Job 7 not found") {
			t.Errorf("%q, exit %d, %v", text, code, err)
		}
		if _, _, _, err := logs(s, api.LogsBody{ClusterName: "dve"}, nil); !isType(err, api.ErrClusterDoesNotExist) || !strings.Contains(err.Error(), "dev") {
			t.Errorf("a misspelt name: %v", err)
		}
	})
}

// A stream of a cluster that was replaced must not go on with the log of the new one.
func TestALogOfAnEarlierIncarnationIsNotThatOfTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := talking(t)
		at := cluster.LogPosition{Hash: b.Cluster("dev").Hash, JobID: 1}
		if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", talk); err != nil {
			t.Fatal(err)
		}
		if text, _, _, err := logs(s, api.LogsBody{ClusterName: "dev"}, &at); err == nil || text != "" || !strings.Contains(err.Error(), "is gone") {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestALogEndsWithItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := talking(t)
		down := make(chan error, 1)
		go func() {
			time.Sleep(time.Minute)
			down <- s.Down(testbed.NewRequest(), "dev")
		}()
		text, _, _, err := logs(s, api.LogsBody{ClusterName: "dev"}, nil)
		if !strings.HasPrefix(text, "first\n") || err == nil && !strings.Contains(text, "CANCELLED") {
			t.Errorf("%q, %v", text, err)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

func TestOnlyTheJobsThatAreMeantAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		exec := func(r *testbed.Request) {
			t.Helper()
			if _, err := s.Executor.Exec(s.Context(), s.Call(r), api.ExecBody{Task: "run: sleep 1h\n", ClusterName: "dev"},
				func(context.Context, string) (bool, error) { return false, nil }); err != nil {
				t.Fatal(err)
			}
		}
		bob := testbed.NewRequest()
		bob.User = state.User{ID: "b0b", Name: "bob", Role: "user"}
		exec(testbed.NewRequest()) // 2
		exec(bob)                  // 3
		exec(testbed.NewRequest()) // 4
		running := func() (ids []int) {
			t.Helper()
			list, err := s.Clusters.Queue(s.Context(), s.Call(testbed.NewRequest()), api.QueueBody{ClusterName: "dev", AllUsers: true, SkipFinished: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range list {
				ids = append(ids, j.JobID)
			}
			slices.Sort(ids)
			return ids
		}
		for _, step := range []struct {
			name string
			body api.CancelBody
			left []int
			says string
		}{
			{"by id", api.CancelBody{JobIDs: []int{2}}, []int{1, 3, 4}, "Job 2 cancelled."},
			{"again", api.CancelBody{JobIDs: []int{2}}, []int{1, 3, 4}, "Job 2 has already ended (status: CANCELLED).\nNo job needed"},
			{"one that is not there", api.CancelBody{JobIDs: []int{99}}, []int{1, 3, 4}, "Job 99 is not on cluster dev (see: sky queue dev).\nNo job needed"},
			{"their latest", api.CancelBody{}, []int{1, 3}, "Job 4 cancelled."},
			{"by ids, of which one is not there", api.CancelBody{JobIDs: []int{1, 99, 2}}, []int{3}, "Job 2 has already ended (status: CANCELLED).\nJob 99 is not on cluster dev (see: sky queue dev).\nJob 1 cancelled."},
			{"everybody's", api.CancelBody{AllUsers: true}, nil, "Job 3 cancelled."},
		} {
			step.body.ClusterName = "dev"
			r := testbed.NewRequest()
			if err := s.Clusters.Cancel(s.Context(), s.Call(r), step.body); err != nil {
				t.Fatal(err)
			}
			if got := running(); !slices.Equal(got, step.left) || !strings.Contains(r.Out.String(), step.says) {
				t.Errorf("%s: %v run; it says %q", step.name, got, r.Out)
			}
		}
		got, err := s.Clusters.JobStatus(s.Context(), api.JobStatusBody{ClusterName: "dev", JobIDs: []int{1, 9}})
		if err != nil || len(got) != 2 || *got["1"] != api.JobCancelled || got["9"] != nil {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := s.Clusters.JobStatus(s.Context(), api.JobStatusBody{ClusterName: "dev"}); err != nil || len(got) != 1 || *got["4"] != api.JobCancelled {
			t.Errorf("the latest: %v, %v", got, err)
		}
		if n := len(b.Head("dev").Jobs()); n != 4 {
			t.Errorf("%d jobs", n)
		}
	})
}

func TestAClusterWithoutJobsHasNoLatestOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		if _, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud, cpus: 2+}\n"); err != nil {
			t.Fatal(err)
		}
		if jobs := b.Head("dev").Jobs(); len(jobs) > 0 {
			t.Fatalf("%+v", jobs)
		}
		for _, tt := range []struct {
			ids  []int
			want string
		}{{nil, "[]"}, {[]int{0}, "[]"}, {[]int{0, 3, 4}, "[3 4]"}} {
			got, err := s.Clusters.JobStatus(s.Context(), api.JobStatusBody{ClusterName: "dev", JobIDs: tt.ids})
			if ids := fmt.Sprint(slices.Sorted(maps.Keys(got))); err != nil || ids != tt.want || got["3"] != nil || got["4"] != nil {
				t.Errorf("asked for %v: %v, %v", tt.ids, got, err)
			}
		}
	})
}

// fullDisk takes nothing.
type fullDisk struct{ err error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.err }

// Whoever cannot take a log is not told that it was all.
func TestALogThatCannotBeTakenIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := talking(t)
		time.Sleep(time.Second)
		b.Head("dev").HookSaid("down", "saved\n")
		var said bytes.Buffer
		if err := s.Clusters.HookLogs(s.Context(), "dev", "", &said); err != nil || said.String() != "saved\n" {
			t.Errorf("hooks: %q, %v", said.String(), err)
		}
		no := errors.New("no space left")
		if err := s.Clusters.HookLogs(s.Context(), "dev", "", fullDisk{no}); !errors.Is(err, no) {
			t.Errorf("hooks: %v", err)
		}
		for _, follow := range []bool{false, true} {
			body := api.LogsBody{ClusterName: "dev", Follow: &follow}
			if _, err := s.Clusters.Logs(s.Context(), body, nil, func(cluster.LogPosition) error { return nil }, fullDisk{no}); !errors.Is(err, no) {
				t.Errorf("writing, follow %v: %v", follow, err)
			}
			var out bytes.Buffer
			if _, err := s.Clusters.Logs(s.Context(), body, nil, func(cluster.LogPosition) error { return no }, &out); !errors.Is(err, no) || out.Len() > 0 {
				t.Errorf("beginning, follow %v: %q, %v", follow, out.String(), err)
			}
		}
	})
}

func TestLogFoldersAreDownloadedAndStayWhereTheyBelong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := talking(t)
		time.Sleep(time.Second)
		dir := t.TempDir()
		got, err := s.Clusters.DownloadLogs(s.Context(), s.Call(testbed.NewRequest()), api.DownloadLogsBody{ClusterName: "dev", JobIDs: []string{"[1-3]"}}, dir, nil)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		if text, err := os.ReadFile(filepath.Join(got["1"], "run.log")); err != nil || string(text) != "first\n" {
			t.Errorf("%q, %v", text, err)
		}
		if got, err := s.Clusters.DownloadLogs(s.Context(), s.Call(testbed.NewRequest()), api.DownloadLogsBody{ClusterName: "dev", JobIDs: []string{"2"}}, dir, nil); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
		small := &diskspace.Share{
			Ledger: &diskspace.Ledger{Dir: dir, Count: func() map[string]int64 { return nil }},
			User:   "ann", Limits: diskspace.Limits{User: 3 * 4096, All: 1 << 50, KeepFree: 1}, // the folders, and not the file
		}
		to := filepath.Join(dir, "full")
		if _, err := s.Clusters.DownloadLogs(s.Context(), s.Call(testbed.NewRequest()), api.DownloadLogsBody{ClusterName: "dev"}, to, small); !errors.As(err, new(*diskspace.NoRoomError)) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
		var said bytes.Buffer
		if err := s.Clusters.HookLogs(s.Context(), "dev", "", &said); err != nil || !strings.Contains(said.String(), "No hook has run") {
			t.Errorf("%q, %v", said.String(), err)
		}
	})
}

func TestEventsTellWhatHappenedToThoseWhoMaySeeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		hash, name := b.Cluster("dev").Hash, "dev"
		if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		call := s.Call(testbed.NewRequest())
		got, err := s.Clusters.Events(s.Context(), call, api.ClusterEventsBody{ClusterHash: &hash})
		texts, _ := got.([]string)
		if err != nil || len(texts) < 3 || texts[0] != "getting machines" || texts[len(texts)-1] != "terminated by ann" {
			t.Errorf("%q, %v", got, err)
		}
		last := 1
		got, err = s.Clusters.Events(s.Context(), call, api.ClusterEventsBody{ClusterName: &name, EventType: "TERMINAL", Limit: &last, IncludeTimestamps: true})
		if err != nil || !strings.Contains(fmt.Sprint(got), "terminated by ann "+fmt.Sprint(time.Now().Unix())[:8]) {
			t.Errorf("%v, %v", got, err)
		}
		call.Scope = &state.Scope{User: "b0b", Workspaces: []string{"elsewhere"}}
		if got, err := s.Clusters.Events(s.Context(), call, api.ClusterEventsBody{ClusterHash: &hash}); err != nil || len(got.([]string)) != 0 {
			t.Errorf("somebody of another workspace sees %q, %v", got, err)
		}
		if _, err := s.Clusters.Events(s.Context(), call, api.ClusterEventsBody{}); !isType(err, api.ErrValue) {
			t.Errorf("of no cluster: %v", err)
		}
	})
}

// Several clusters, one after the other, may have had one name, each in a workspace of
// its own.
func TestEventsAreSeenInTheWorkspaceOfTheirCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		first := b.Cluster("dev").Hash
		if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", longJob); err != nil {
			t.Fatal(err)
		}
		second := b.Cluster("dev").Hash
		if _, err := b.Store.Clusters().Update(t.Context(), "dev", second, func(c *state.Cluster) error {
			c.Workspace = "other"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, hash := range []string{first, second, "nobody knows"} {
			if err := b.Store.Clusters().AddEvent(t.Context(), state.ClusterEvent{ClusterHash: hash, ClusterName: "dev", Type: "NOTE", Reason: hash, At: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		name := "dev"
		for _, tt := range []struct {
			scope *state.Scope
			want  []string
		}{
			{nil, []string{first, second, "nobody knows"}},
			{&state.Scope{User: "b0b", Workspaces: []string{state.DefaultWorkspace, "other"}}, []string{first, second}},
			{&state.Scope{User: "b0b", Workspaces: []string{state.DefaultWorkspace}}, []string{first}},
			{&state.Scope{User: "b0b", Workspaces: []string{"other"}}, []string{second}},
			{&state.Scope{User: "b0b"}, nil},
		} {
			call := s.Call(testbed.NewRequest())
			call.Scope = tt.scope
			got, err := s.Clusters.Events(s.Context(), call, api.ClusterEventsBody{ClusterName: &name, EventType: "NOTE"})
			if err != nil {
				t.Fatalf("%v: %v", tt.scope, err)
			}
			texts := slices.Sorted(slices.Values(got.([]string)))
			if slices.Sort(tt.want); !slices.Equal(texts, tt.want) {
				t.Errorf("%v sees %q, want %q", tt.scope, texts, tt.want)
			}
		}
	})
}

func TestPortsThatAreOpenHaveEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := talking(t)
		ip := b.Cluster("dev").Nodes[0].ExternalIP
		got, err := s.Clusters.Endpoints(s.Context(), api.EndpointsBody{Cluster: "dev"})
		if err != nil || len(got) != 3 || got["8001"] != ip+":8001" {
			t.Errorf("%v, %v", got, err)
		}
		one := func(p string) *api.IntOrString {
			var v api.IntOrString
			if err := v.UnmarshalJSON([]byte(p)); err != nil {
				t.Fatal(err)
			}
			return &v
		}
		if got, err := s.Clusters.Endpoints(s.Context(), api.EndpointsBody{Cluster: "dev", Port: one("80")}); err != nil || len(got) != 1 || got["80"] != ip+":80" {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := s.Clusters.Endpoints(s.Context(), api.EndpointsBody{Cluster: "dev", Port: one("22")}); !isType(err, api.ErrValue) {
			t.Errorf("a closed port: %v", err)
		}
	})
}

// hint is what an error says to do next.
func hint(err error) string {
	e, _ := errors.AsType[*api.Error](err)
	return e.Hint
}

// What needs a cluster that runs says how to get there from what it is.
func TestWorkOnAClusterThatIsNotUpSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Clusters.Queue(s.Context(), s.Call(testbed.NewRequest()), api.QueueBody{ClusterName: "dev"})
		if !isType(err, api.ErrClusterNotUp) || !strings.Contains(hint(err), "sky start dev") {
			t.Errorf("%v", err)
		}
		c := *b.Cluster("dev")
		c.Status = api.ClusterInit
		if err := cluster.NotUp(&c, "x"); !strings.Contains(hint(err), "Wait for its launch") {
			t.Error(err)
		}
		c.Notes.GivingBack = "why"
		if err := cluster.NotUp(&c, "x"); !strings.Contains(hint(err), "is being given back") {
			t.Error(err)
		}
	})
}

// An agent whose answer does not come is asked once more after a look, and then given
// up with an error that says so.
func TestAQuestionToASilentAgentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		b.Head("dev").Crash() // and the server brings it back
		if list, err := s.Clusters.Queue(s.Context(), s.Call(testbed.NewRequest()), api.QueueBody{ClusterName: "dev"}); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		b.Head("dev").Crash()
		s.Refuse("agent.start", errors.New("no shell"))
		if _, err := s.Clusters.Queue(s.Context(), s.Call(testbed.NewRequest()), api.QueueBody{ClusterName: "dev"}); err == nil {
			t.Error("an agent that is dead answered")
		}
		b.WantMachines("dev running")
	})
}

// What an agent says of its machine's end is in the cluster's history, once.
func TestANoticeOfTheCloudIsInTheHistoryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 2)
		s.Watch()
		time.Sleep(time.Second)
		b.Nodes("dev")[1].Notice(agentapi.Notice{Action: "terminate", At: float64(time.Now().Unix())})
		time.Sleep(time.Minute)
		hash := b.Cluster("dev").Hash
		got, err := s.Clusters.Events(s.Context(), s.Call(testbed.NewRequest()), api.ClusterEventsBody{ClusterHash: &hash})
		if n := strings.Count(fmt.Sprint(got), "the cloud takes worker1 back (terminate)"); err != nil || n != 1 {
			t.Errorf("%d times: %q, %v", n, got, err)
		}
	})
}

// What a cloud says of a machine's end to its customers alone reaches the machine's agent.
func TestANoticeToTheCustomerReachesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		for name, spot := range map[string]string{"dev": "true", "steady": "false"} {
			if _, err := s.Launch(testbed.NewRequest(), name, "num_nodes: 2\n"+strings.Replace(longJob, "{", "{use_spot: "+spot+", ", 1)); err != nil {
				t.Fatal(err)
			}
		}
		s.Watch()
		time.Sleep(time.Second)
		last := b.Cluster("dev").Nodes[1]
		at := time.Now().Add(5 * time.Minute)
		if err := b.Cloud.Preempt(last.ID, 5*time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		hash := b.Cluster("dev").Hash
		got, err := s.Clusters.Events(s.Context(), s.Call(testbed.NewRequest()), api.ClusterEventsBody{ClusterHash: &hash})
		if want := "the cloud takes worker1 back (terminate) at " + at.UTC().Format("2006-01-02T15:04"); err != nil || strings.Count(fmt.Sprint(got), want) != 1 {
			t.Errorf("%q is not once in %q, %v", want, got, err)
		}
	})
}

// The clusters of managed jobs are their controller's.
func TestUsersDoNotEndClustersOfManagedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if _, err := b.Store.Clusters().Update(t.Context(), "dev", b.Cluster("dev").Hash, func(c *state.Cluster) error {
			c.Holder = state.JobHolder(7)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		call := s.Call(testbed.NewRequest())
		for name, f := range map[string]func() error{
			"down": func() error { return s.Down(testbed.NewRequest(), "dev") },
			"stop": func() error { return s.Stop(testbed.NewRequest(), "dev") },
			"autostop": func() error {
				return s.Clusters.Autostop(s.Context(), call, api.AutostopBody{ClusterName: "dev", IdleMinutes: 1})
			},
			"cancel": func() error {
				return s.Clusters.Cancel(s.Context(), call, api.CancelBody{ClusterName: "dev", All: true})
			},
		} {
			if err := f(); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "managed job 7") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Clusters.DownHeld(s.Context(), call, "dev", state.JobHolder(8)); err != nil {
			t.Error(err)
		}
		b.WantMachines("dev running")                                // another job's controller ends it neither
		if jobs := b.Head("dev").Jobs(); jobs[0].Status.Terminal() { // it may not have begun
			t.Errorf("%+v", jobs)
		}
		if err := s.Clusters.DownHeld(s.Context(), call, "dev", state.JobHolder(7)); err != nil {
			t.Error(err)
		}
		b.WantNothingLeft("dev")
	})
}

// An agent is asked to cancel what is picked; nothing picked is no request to cancel
// the latest.
func TestWhatIsPickedIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		c := b.Cluster("dev")
		for _, pick := range []bool{false, true} {
			err := s.Clusters.AgentCancel(s.Context(), c, func(all []agentapi.Job) (ids []int) {
				if pick {
					ids = append(ids, all[0].ID)
				}
				return ids
			})
			if j := b.Head("dev").Jobs()[0]; err != nil || (j.Status == api.JobCancelled) != pick {
				t.Errorf("picked %v: %s, %v", pick, j.Status, err)
			}
		}
	})
}

// checkable is a cloud with credentials of a kind.
type checkable struct {
	cloud.Provider
	name string
	who  cloud.Identity
	err  error
}

func (c checkable) Name() string                                  { return strings.ToLower(c.name) }
func (c checkable) DisplayName() string                           { return c.name }
func (c checkable) Check(context.Context) (cloud.Identity, error) { return c.who, c.err }

func TestCheckTellsWhatWorksAndHowToMendWhatDoesNot(t *testing.T) {
	good := checkable{name: "Good", who: cloud.Identity{"ann@good"}}
	bad := checkable{name: "Bad", err: &cloud.AuthError{Cloud: "bad", Fix: "bad login", Err: errors.New("no key")}}
	cfg, err := config.FromMap(config.Server, config.Origin{}, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		clouds  []string
		enabled []string
		says    []string
	}{
		{"all", nil, []string{"Good"}, []string{"Good: enabled [compute]", "Activated account: ann@good", "Bad: disabled", "no key", "To enable it: bad login", "🎉 Enabled infra 🎉\n  Good [compute]"}},
		{"one that does not work", []string{"BAD"}, nil, []string{"Bad: disabled", "No infra to check/enabled"}},
	} {
		var out bytes.Buffer
		got, err := cluster.Checker{Providers: cloud.NewRegistry(good, bad), Config: cfg, Verbose: true}.Check(t.Context(), tt.clouds, &out)
		if err != nil || len(got) != len(tt.enabled) || len(tt.enabled) > 0 && got[tt.enabled[0]] == nil {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
		for _, want := range tt.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is not in\n%s", tt.name, want, out.String())
			}
		}
	}
	// However many clouds nobody has set up, what is said of them fits a screen.
	var many []cloud.Provider
	for i := range 40 {
		many = append(many, checkable{name: fmt.Sprintf("Unused%02d", i), err: &cloud.AuthError{NotSetUp: true, Err: errors.New("no file")}})
	}
	var screen bytes.Buffer
	if _, err := (cluster.Checker{Providers: cloud.NewRegistry(append(many, good)...), Config: cfg}).Check(t.Context(), nil, &screen); err != nil || strings.Count(screen.String(), "\n") > 15 || strings.Count(screen.String(), "Unused") != 40 {
		t.Errorf("%v\n%s", err, screen.String())
	}
	for line := range strings.Lines(screen.String()) {
		if len([]rune(line)) > 80 {
			t.Errorf("it does not fit 80 columns: %q", line)
		}
	}
	// What nobody has set up is one line, unless it is asked for.
	unused := checkable{name: "Unused", err: &cloud.AuthError{Cloud: "unused", Fix: "unused login", NotSetUp: true, Err: errors.New("no file")}}
	for _, tt := range []struct {
		clouds  []string
		verbose bool
		want    string
	}{
		{nil, false, "  Good: enabled [compute]\n  Not set up: Unused\n    How to: sky check NAME, or of all: sky check -v\n"},
		{nil, true, "  Unused: disabled\n    Reason [compute]: unused is not set up: no file\n    To enable it: unused login\n"},
		{[]string{"unused"}, false, "  Unused: disabled\n    Reason [compute]: unused is not set up: no file\n    To enable it: unused login\n"},
	} {
		var out bytes.Buffer
		if _, err := (cluster.Checker{Providers: cloud.NewRegistry(good, unused), Config: cfg, Verbose: tt.verbose}).Check(t.Context(), tt.clouds, &out); err != nil || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%v, %t: %v\n%s", tt.clouds, tt.verbose, err, out.String())
		}
	}
	if _, err := (cluster.Checker{Providers: cloud.NewRegistry(good), Config: cfg}).Check(t.Context(), []string{"moon"}, &bytes.Buffer{}); !isType(err, api.ErrValue) || !strings.Contains(err.Error(), "good") {
		t.Errorf("a cloud that there is not: %v", err)
	}
}

// Processes have the time that a stop or a down asks for, on every node, and the call
// waits as long.
func TestAnEndGivesTheTimeThatItIsAskedFor(t *testing.T) {
	for _, tt := range []struct {
		graceful bool
		timeout  *int
		want     int // as agents are told it; -1: the call is refused
	}{
		{false, nil, 0}, {true, new(90), 90}, {true, nil, 3600}, {true, new(-1), -1},
	} {
		for what, end := range map[string]func(s *testbed.Server, b api.StopBody) error{
			"stop": func(s *testbed.Server, b api.StopBody) error {
				return s.Clusters.Stop(s.Context(), s.Call(testbed.NewRequest()), b)
			},
			"down": func(s *testbed.Server, b api.StopBody) error {
				return s.Clusters.Down(s.Context(), s.Call(testbed.NewRequest()), b)
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				b, s := launched(t, 2)
				nodes := b.Nodes("dev")
				err := end(s, api.StopBody{ClusterName: "dev", Graceful: tt.graceful, GracefulTimeout: tt.timeout})
				if tt.want < 0 {
					if !isType(err, api.ErrValue) {
						t.Errorf("%s: %v", what, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for rank, n := range nodes {
					if got := n.Shutdowns(); len(got) != 1 || got[0].GraceSeconds != tt.want {
						t.Errorf("%s of node %d: %+v, want %d s", what, rank, got, tt.want)
					}
				}
			})
		}
	}
}
