//go:build unix

package controller

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// launched is a near server that has handed a job over.
func launched(t *testing.T) *near {
	t.Helper()
	n := newNear(t, "")
	if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err != nil {
		t.Fatal(err)
	}
	return n
}

// log asks for the log of a job and returns it with its exit code.
func (n *near) log(call cluster.Call) (string, any, error) {
	var out bytes.Buffer
	code, err := n.c.AnswerLog(n.s.Context(), call, "sky.jobs.logs", []byte(`{"tail": 10}`), &out)
	return out.String(), code, err
}

// The files that a job needs are on this side: they go along.
func TestTheFilesOfAJobGoToTheFarServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		if body := n.far.bodies["/jobs/launch"]; len(n.far.uploads) != 0 || strings.Contains(body, "blob_id") {
			t.Errorf("a job without files: %v came with %s", n.far.uploads, body)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("pass\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob + "file_mounts: {/code: " + dir + "}\n"}); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(n.far.uploads, func(name string) bool { return strings.HasSuffix(name, "/train.py") }) {
			t.Errorf("what came is %v", n.far.uploads)
		}
		if body := n.far.bodies["/jobs/launch"]; !strings.Contains(body, `"file_mounts_blob_id":"`) {
			t.Errorf("the far server is not told which files are the job's: %s", body)
		}
		_, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob + "file_mounts: {/code: " + dir + "/none}\n"})
		if !isType(err, api.ErrFileNotFound) && !isType(err, api.ErrValue) || n.far.count() != 2 {
			t.Errorf("a file that is not there: %v, %d jobs", err, n.far.count())
		}
		_, err = n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: "run: ["})
		if !isType(err, api.ErrValue) || n.far.count() != 2 {
			t.Errorf("a task that is none: %v, %d jobs", err, n.far.count())
		}
	})
}

// Logs that the far server gathered are copied here, where the client fetches them.
func TestGatheredLogsAreBroughtHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		logs := filepath.Join(t.TempDir(), "sky_logs")
		got, err := n.c.Answer(n.s.Context(), n.s.Call(testbed.NewRequest()), "sky.jobs.download_logs", []byte(`{"job_id": 1}`), logs, nil)
		want := filepath.Join(logs, "api", "1-train")
		if err != nil || string(got) != `{"1":"`+want+`"}` {
			t.Fatalf("%s, %v", got, err)
		}
		if text, err := os.ReadFile(filepath.Join(want, "run.log")); err != nil || string(text) != "epoch 1\n" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A log that is shown again is that of the same request on the far side, not a new one.
func TestALogIsReplayedFromTheFarServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		r := testbed.NewRequest()
		if text, code, err := n.log(n.s.Call(r)); text != "epoch 1\n" || code != 7 || err != nil {
			t.Errorf("%q, %v, %v", text, code, err)
		}
		if text, _, err := n.log(n.s.Call(r)); text != "said by the far server\n" || err != nil || n.far.replays != 1 {
			t.Errorf("again: %q, %v, %d replays", text, err, n.far.replays)
		}
		// What cannot be kept is not shown: the replay would be another log.
		broken := n.s.Call(testbed.NewRequest())
		broken.Save = func(context.Context, []byte) error { return errors.New("disk full") }
		if text, _, err := n.log(broken); err == nil || text != "" {
			t.Errorf("what is not kept is shown: %q, %v", text, err)
		}
		if text, code, err := n.log(cluster.Call{RequestID: "x", User: testbed.Ann, Out: &testbed.Output{}}); text != "epoch 1\n" || code != 7 || err != nil {
			t.Errorf("without a state: %q, %v, %v", text, code, err)
		}
	})
}

// A far server that takes no calls for a while is asked again, and not for ever.
func TestAFarServerThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		away := func(is bool) { n.far.change(func(f *farServer) { f.away = is }) }
		queue := func() error {
			_, err := n.answer(t, testbed.NewRequest(), "sky.jobs.queue_v2", api.JobsQueueBody{})
			return err
		}
		away(true)
		back := make(chan struct{})
		go func() { time.Sleep(40 * time.Second); away(false); close(back) }()
		if err := queue(); err != nil {
			t.Errorf("it was away for less than a minute: %v", err)
		}
		<-back
		away(true)
		began := time.Now()
		err := queue()
		if !isType(err, api.ErrRuntime) || !strings.Contains(err.Error(), "does not answer") || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("it does not come back: %v", err)
		}
		if took := time.Since(began); took < answerTimeout || took > 5*answerTimeout {
			t.Errorf("that took %v to tell", took)
		}
		// Whoever has gone is not kept waiting.
		ctx, leave := context.WithCancelCause(n.s.Context())
		gone := errors.New("gone")
		go func() { time.Sleep(5 * time.Second); leave(gone) }()
		began = time.Now()
		_, err = n.c.Answer(ctx, n.s.Call(testbed.NewRequest()), "sky.jobs.queue_v2", []byte("{}"), "", nil)
		if err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A request that its user calls off ends on the far side, too; one that the next life
// of this server goes on with does not.
func TestARequestThatIsCalledOffEndsOnTheFarSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		wait := func(cause error) string {
			r := testbed.NewRequest()
			call := n.s.Call(r)
			rested := make(chan struct{}, 1)
			call.Rest = func(f func()) { rested <- struct{}{}; f() }
			ctx, leave := context.WithCancelCause(n.s.Context())
			go func() { <-rested; time.Sleep(time.Minute); leave(cause) }()
			if _, err := n.c.Answer(ctx, call, "sky.jobs.wait", []byte(`{"job_id": 1}`), "", nil); !errors.Is(err, cause) {
				t.Errorf("ended with %v, not with %v", err, cause)
			}
			return r.ID
		}
		wait(state.ErrHandover)
		if len(n.far.ended) != 0 {
			t.Errorf("the next server has nothing to go on with: %v", n.far.ended)
		}
		if id := wait(errors.New("called off")); !slices.Equal(n.far.ended, []string{id}) {
			t.Errorf("ended there: %v", n.far.ended)
		}
	})
}

// A launch that a crash cut off goes on with the job that was handed over, if one was.
func TestALaunchIsGoneOnWithAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		if _, err := n.Store.ManagedJobs().Submit(t.Context(), &state.ManagedJob{RequestID: "r", Name: "old", UserHash: testbed.Ann.ID, Workspace: "default",
			SubmittedAt: time.Now(), Dag: []byte("name: x\n---\nrun: x\n"), Tasks: []*state.ManagedTask{{Name: "old"}}}); err != nil {
			t.Fatal(err)
		}
		r := testbed.NewRequest()
		for range 3 {
			if _, err := n.answer(t, r, "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err != nil || n.far.count() != 2 {
				t.Errorf("%d jobs, %v", n.far.count(), err)
			}
		}
		if told := strings.Count(r.Out.String(), "1 managed jobs from before the controller go on"); told != 1 {
			t.Errorf("jobs from before are told of %d times", told)
		}
	})
}

// Sleeping controllers are woken by launches, and by questions that ask for it.
func TestAQuestionWakesTheControllerOnlyIfItSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := launched(t)
		if err := n.s.Stop(testbed.NewRequest(), n.c.Name()); err != nil {
			t.Fatal(err)
		}
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.queue_v2", api.JobsQueueBody{}); !isType(err, api.ErrClusterNotUp) {
			t.Errorf("it was asked: %v", err)
		}
		if got, err := n.answer(t, testbed.NewRequest(), "sky.jobs.queue_v2", api.JobsQueueBody{Refresh: true}); err != nil || !strings.Contains(got, "ALIVE") {
			t.Errorf("%s, %v", got, err)
		}
		if c := n.Cluster(n.c.Name()); c.Status != api.ClusterUp {
			t.Errorf("the controller is %s", c.Status)
		}
	})
}
