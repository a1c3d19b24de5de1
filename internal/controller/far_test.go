//go:build unix

package controller

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// farServer is the API server on the controller, as far as it is asked here: it keeps
// requests by their ids and takes each once.
type farServer struct {
	build string

	mu       sync.Mutex
	requests map[string]string // results by id
	jobs     []string          // places in the schedule
	plans    int               // schedules
	services []string          // their names
	scope    string            // of the latest call
	bodies   map[string]string // of calls, by path
	uploads  []string          // names in the archives that came
	away     bool              // it is up, and takes no other calls
	replays  int               // of logs by the id of their request
	ended    []string          // requests that somebody cancelled
}

func (f *farServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set(api.HeaderAPIVersion, fmt.Sprint(api.Version))
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if f.away && r.URL.Path != "/api/health" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	f.scope = r.Header.Get(api.HeaderScope)
	switch path := r.URL.Path; path {
	case "/api/health":
		answer(map[string]any{"status": "healthy", "api_version": fmt.Sprint(api.Version), "build_id": f.build})
	case "/api/get":
		id := r.URL.Query().Get("request_id")
		if f.requests[id] == lasts {
			f.mu.Unlock()
			<-r.Context().Done()
			f.mu.Lock()
			return
		}
		answer(api.RequestPayload{RequestID: id, Status: api.RequestSucceeded, ReturnValue: f.requests[id]})
	case "/api/status":
		known := []api.RequestPayload{}
		for _, id := range r.URL.Query()["request_ids"] {
			if f.requests[id] != "" {
				known = append(known, api.RequestPayload{RequestID: id})
			}
		}
		answer(known)
	case "/api/stream":
		if id := r.URL.Query().Get("request_id"); f.requests[id] == logCode {
			f.replays++
		}
		fmt.Fprintln(w, "said by the far server")
	case "/api/cancel":
		var b api.APICancelBody
		_ = json.NewDecoder(r.Body).Decode(&b)
		f.ended = append(f.ended, b.RequestIDs...)
		w.Header().Set(api.HeaderRequestID, "cancel")
		f.requests["cancel"] = "[]"
	case "/jobs/logs":
		id := uuid.NewString()
		w.Header().Set(api.HeaderRequestID, id)
		f.requests[id] = logCode
		fmt.Fprintln(w, "epoch 1")
	case "/upload_v2/blob":
		answer(map[string]bool{"exists": false})
	case "/upload_v2":
		b, _ := io.ReadAll(r.Body)
		if z, err := zip.NewReader(bytes.NewReader(b), int64(len(b))); err == nil {
			for _, file := range z.File {
				f.uploads = append(f.uploads, file.Name)
			}
		}
		answer(map[string]string{"status": "completed"})
	case "/download":
		z := zip.NewWriter(w)
		out, _ := z.Create(farLogs + "/run.log")
		_, _ = io.WriteString(out, "epoch 1\n")
		_ = z.Close()
	default:
		id := r.Header.Get(api.HeaderRequestID)
		w.Header().Set(api.HeaderRequestID, id)
		b, _ := io.ReadAll(r.Body)
		if f.bodies == nil {
			f.bodies = map[string]string{}
		}
		f.bodies[path] = string(b)
		if f.requests[id] == "" {
			f.requests[id] = f.take(path)
		}
	}
}

// Results of requests on the far server.
const (
	lasts   = "lasts"                          // there is none yet
	logCode = "7"                              // of a job's log
	farLogs = "/home/far/sky_logs/api/1-train" // where a job's logs were gathered
)

// change is made while nobody calls.
func (f *farServer) change(how func(*farServer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f)
}

// take does what a request asks for and returns its result.
func (f *farServer) take(path string) string {
	switch path {
	case "/jobs/launch":
		f.jobs = append(f.jobs, "ALIVE")
		return fmt.Sprintf(`{"job_id": %d}`, len(f.jobs))
	case "/jobs/queue/v2":
		list := []map[string]any{}
		for i, s := range f.jobs {
			list = append(list, map[string]any{"job_id": i + 1, "schedule_state": s})
		}
		b, _ := json.Marshal(map[string]any{"jobs": list, "total": len(list)})
		return string(b)
	case "/serve/up":
		f.services = append(f.services, "web")
		return `["web"]`
	case "/serve/status":
		list := []api.Service{}
		for _, name := range f.services {
			list = append(list, api.Service{Name: name})
		}
		b, _ := json.Marshal(list)
		return string(b)
	case "/jobs/wait":
		return lasts
	case "/jobs/download_logs":
		return `{"1": "` + farLogs + `"}`
	case "/jobs/schedules":
		b, _ := json.Marshal(make([]api.JobsSchedule, f.plans))
		return string(b)
	}
	return "null"
}

func (f *farServer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.jobs)
}

// near is a server whose managed jobs are looked after by a controller.
type near struct {
	*testbed.Bed
	s   *testbed.Server
	c   *Controller
	far *farServer
}

func newNear(t *testing.T, text string) *near { return newNearOf(t, Jobs, text) }

func newNearOf(t *testing.T, kind *Kind, text string) *near {
	t.Helper()
	n := &near{Bed: testbed.New(t), far: &farServer{build: testbed.Build, requests: map[string]string{}}}
	n.s = n.Boot(failpoint.Endless)
	n.s.Tell(func(step string) {
		if step != "agent.submit" {
			return
		}
		for _, m := range n.Cloud.Machines() {
			if node := n.Node(m.ID); node != nil {
				node.Serve(kind.job, "sleep 1h", n.far)
			}
		}
	})
	cfg := configured(t, kind.section+": {controller: {mode: cluster, resources: {infra: fluffycloud, cpus: 2+}"+text+"}}\n")
	n.c = New(Deps{Kind: kind, Store: n.s.Store, Providers: n.s.Providers, Executor: n.s.Executor, Clusters: n.s.Clusters, Remote: n.s.Remote,
		Config: func() *config.Config { return cfg }, Self: testbed.Ann, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	return n
}

func (n *near) answer(t *testing.T, r *testbed.Request, name string, body any) (string, error) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := n.c.Answer(n.s.Context(), n.s.Call(r), name, b, t.TempDir(), nil)
	return string(got), err
}

const someJob = "name: train\nrun: sleep 1h\n"

func isType(err error, want string) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Type == want
}

func TestAJobIsHandedToAControllerThatIsRentedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNear(t, "")
		// There is none: nothing is rented for a question.
		if got, err := n.answer(t, testbed.NewRequest(), "sky.jobs.queue", api.JobsQueueBody{}); err != nil || got != "[]" {
			t.Errorf("%s, %v", got, err)
		}
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.cancel", api.JobsCancelBody{All: true}); !isType(err, api.ErrValue) {
			t.Errorf("%v", err)
		}
		if m := n.Machines(); len(m) != 0 {
			t.Fatalf("machines: %v", m)
		}
		r := testbed.NewRequest()
		got, err := n.answer(t, r, "sky.jobs.launch", api.JobsLaunchBody{Task: someJob})
		if err != nil || got != `{"job_id":1}` && got != `{"job_id": 1}` || !strings.Contains(r.Out.String(), "said by the far server") {
			t.Fatalf("%s, %v\n%s", got, err, r.Out)
		}
		name := n.c.Name()
		if c := n.Cluster(name); c == nil || c.Status != api.ClusterUp || c.UserHash != testbed.Ann.ID || Reserved(name) != "managed jobs" {
			t.Fatalf("%+v", c)
		}
		head := n.Head(name)
		if a := head.Autostop(); a == nil || a.IdleMinutes != 1 {
			t.Errorf("autostop: %+v", a)
		}
		for file, want := range map[string]string{"build": testbed.Build, "good": testbed.Build, "home/.sky/config.yaml": ""} {
			text, err := os.ReadFile(filepath.Join(head.Home(), Jobs.dir, file))
			if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "mode: cluster") {
				t.Errorf("%s: %q, %v", file, text, err)
			}
		}
		// The same request again is the same job, and the next one finds everything there.
		if _, err := n.answer(t, r, "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err != nil || n.far.count() != 1 {
			t.Errorf("%d jobs, %v", n.far.count(), err)
		}
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err != nil || n.far.count() != 2 {
			t.Errorf("%d jobs, %v", n.far.count(), err)
		}
		if n := len(head.Jobs()); n != 1 {
			t.Errorf("%d servers", n)
		}
		// What a caller may touch here holds there.
		call := n.s.Call(testbed.NewRequest())
		call.Scope = &state.Scope{User: "b0b", Workspaces: []string{"default"}}
		if _, err := n.c.Answer(n.s.Context(), call, "sky.jobs.queue_v2", []byte("{}"), "", nil); err != nil || !strings.Contains(n.far.scope, "b0b") {
			t.Errorf("%s, %v", n.far.scope, err)
		}
	})
}

// A controller with work on it is not ended by a request to end its cluster.
func TestAControllerWithUnfinishedJobsDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNear(t, "")
		ends := func() error {
			done, err := n.c.Ending(n.s.Context())
			if err == nil {
				done()
			}
			return err
		}
		if err := ends(); err != nil {
			t.Errorf("there is none: %v", err)
		}
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err != nil {
			t.Fatal(err)
		}
		if err := ends(); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "[1]") {
			t.Errorf("a job that goes on: %v", err)
		}
		n.far.jobs[0], n.far.plans = string(api.ScheduleDone), 2
		if err := ends(); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "2 schedules") {
			t.Errorf("schedules: %v", err)
		}
		n.far.plans = 0
		if err := ends(); err != nil {
			t.Errorf("nothing is left to do: %v", err)
		}
		n.c.handing.RLock()
		if err := ends(); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "is handed") {
			t.Errorf("a job on its way: %v", err)
		}
		n.c.handing.RUnlock()
		// Nobody knows what it has to do while it does not answer.
		n.far.jobs[0] = "ALIVE"
		n.Head(n.c.Name()).Crash()
		synctest.Wait() // its connections are closed
		n.s.Refuse("agent.start", errors.New("no shell"))
		if err := ends(); !isType(err, api.ErrRuntime) || !strings.Contains(err.Error(), "cannot be found out") {
			t.Errorf("it does not answer: %v", err)
		}
		n.s.Refuse("agent.start", nil)
		if err := n.s.Stop(testbed.NewRequest(), n.c.Name()); err != nil {
			t.Fatal(err)
		}
		if err := ends(); err != nil {
			t.Errorf("it is off: %v", err)
		}
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.queue", api.JobsQueueBody{}); !isType(err, api.ErrClusterNotUp) {
			t.Errorf("a question wakes it: %v", err)
		}
		if m := n.Machines(); !slices.Equal(m, []string{n.c.Name() + " stopped"}) && len(m) != 1 {
			t.Errorf("machines: %v", m)
		}
	})
}

// A controller that looks after services is not ended: nobody would look after them then.
func TestAControllerWithServicesDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNearOf(t, Services, "")
		ends := func() error {
			done, err := n.c.Ending(n.s.Context())
			if err == nil {
				done()
			}
			return err
		}
		up := api.ServeUpBody{Task: "run: sleep 1h\nservice: {readiness_probe: /, replicas: 1}\nresources: {ports: 8080}\n", ServiceName: "web"}
		if got, err := n.answer(t, testbed.NewRequest(), "sky.serve.up", up); err != nil || got != `["web"]` {
			t.Fatalf("%s, %v", got, err)
		}
		if err := ends(); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "looks after services: web.") {
			t.Errorf("a service: %v", err)
		}
		n.far.change(func(f *farServer) { f.services = append(f.services, "chat") })
		if err := ends(); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "web, chat") {
			t.Errorf("two services: %v", err)
		}
		n.far.change(func(f *farServer) { f.away = true })
		if err := ends(); !isType(err, api.ErrRuntime) || !strings.Contains(err.Error(), "unfinished services cannot be found out") {
			t.Errorf("it does not answer: %v", err)
		}
		n.far.change(func(f *farServer) { f.away, f.services = false, nil })
		if err := ends(); err != nil {
			t.Errorf("no service is left: %v", err)
		}
	})
}

// A far server that went away although there is work is started again; one that ended
// because there was nothing to do rests.
func TestAFarServerThatWentAwayIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNear(t, "")
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(n.s.Context())
		defer cancel()
		kept := make(chan struct{})
		go func() { n.c.Keep(ctx); close(kept) }()
		head := n.Head(n.c.Name())
		jobs := func() int { return len(head.Jobs()) }
		time.Sleep(5 * time.Minute)
		if jobs() != 1 {
			t.Fatalf("%d servers were started", jobs())
		}
		c := n.Cluster(n.c.Name())
		if err := n.s.Clusters.AgentEnd(n.s.Context(), c, 1, time.Second); err != nil { // it is killed
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if jobs() != 2 {
			t.Errorf("%d servers were started", jobs())
		}
		if got, err := n.answer(t, testbed.NewRequest(), "sky.jobs.queue_v2", api.JobsQueueBody{}); err != nil || !strings.Contains(got, "ALIVE") {
			t.Errorf("%s, %v", got, err)
		}
		time.Sleep(2 * time.Hour) // its script ends well: it had nothing to do
		if jobs() != 2 {
			t.Errorf("%d servers were started", jobs())
		}
		cancel()
		<-kept
	})
}

// Where there is no room for a controller, the launch says so and leaves nothing.
func TestAControllerThatCannotBeHadLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNear(t, "")
		n.Inject(model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Message: "no room"})
		if _, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob}); err == nil || !strings.Contains(err.Error(), "bringing up the jobs controller") {
			t.Errorf("%v", err)
		}
		if m := n.Machines(); len(m) != 0 || n.Cluster(n.c.Name()) != nil {
			t.Errorf("machines: %v", m)
		}
	})
}

// A server that does not start on the controller is told with its last words.
func TestAFarServerThatDoesNotStartIsToldWithItsLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNear(t, "")
		n.s.Tell(func(step string) {
			if step != "agent.submit" {
				return
			}
			for _, m := range n.Cloud.Machines() {
				if node := n.Node(m.ID); node != nil {
					node.Serve(Jobs.job, "echo no such library\nsleep 1s\nexit 1", http.NotFoundHandler())
				}
			}
		})
		_, err := n.answer(t, testbed.NewRequest(), "sky.jobs.launch", api.JobsLaunchBody{Task: someJob})
		if err == nil || !strings.Contains(err.Error(), "does not start: no such library") {
			t.Errorf("%v", err)
		}
		if n.far.count() != 0 {
			t.Error("a job was handed over")
		}
	})
}
