//go:build unix

package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// imds is EC2's metadata service, version 2.
type imds struct {
	mu     sync.Mutex
	said   map[string]string // by path
	tokens int               // handed out; only the last is good
}

func (m *imds) say(path, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said[path] = text
}

// expire makes the token that is out no longer good.
func (m *imds) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens++
}

func (m *imds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
		m.tokens++
		fmt.Fprintf(w, "t%d", m.tokens)
	case r.Header.Get("X-aws-ec2-metadata-token") != fmt.Sprintf("t%d", m.tokens):
		w.WriteHeader(http.StatusUnauthorized)
	case m.said[r.URL.Path] == "":
		w.WriteHeader(http.StatusNotFound)
	default:
		fmt.Fprint(w, m.said[r.URL.Path])
	}
}

func startIMDS(t *testing.T) (*imds, string) {
	m := &imds{said: map[string]string{}}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	return m, s.URL
}

const (
	actionPath    = "/latest/meta-data/spot/instance-action"
	rebalancePath = "/latest/meta-data/events/recommendations/rebalance"
)

func TestNoticesAreRead(t *testing.T) {
	service, address := startIMDS(t)
	m := newMetadata(address + "/")
	if n, err := m.notice(t.Context()); n != nil || err != nil {
		t.Errorf("nothing is said: %v, %v", n, err)
	}
	service.say(rebalancePath, `{"noticeTime": "2026-10-27T08:22:00Z"}`)
	if n, err := m.notice(t.Context()); err != nil || *n != (agentapi.Notice{Action: agentapi.NoticeRebalance, At: 1793089320}) || n.Final() {
		t.Errorf("%v, %v", n, err)
	}
	service.expire()
	service.say(actionPath, `{"action": "terminate", "time": "2026-10-27T08:25:00Z"}`)
	if _, err := m.notice(t.Context()); err == nil {
		t.Error("an old token was good")
	}
	if n, err := m.notice(t.Context()); err != nil || *n != (agentapi.Notice{Action: "terminate", At: 1793089500}) || !n.Final() {
		t.Errorf("with a new token: %v, %v", n, err)
	}
	service.say(actionPath, `<html>`)
	if n, err := m.notice(t.Context()); err == nil {
		t.Errorf("nonsense was read as %v", n)
	}
}

func TestScheduledEventsOfAzureAreRead(t *testing.T) {
	text := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") != "true" || r.URL.RequestURI() != azureScheduled {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	event := func(kind, at string) string {
		return fmt.Sprintf(`{"EventId":"1","EventStatus":"Scheduled","EventType":%q,"ResourceType":"VirtualMachine","Resources":["m"],"NotBefore":%q,"Description":"","EventSource":"Platform","DurationInSeconds":-1}`, kind, at)
	}
	for events, want := range map[string]*agentapi.Notice{
		"": nil,
		event("Reboot", "Tue, 27 Oct 2026 08:25:00 GMT"):                                                           nil,
		event("Reboot", "Tue, 27 Oct 2026 08:20:00 GMT") + "," + event("Preempt", "Tue, 27 Oct 2026 08:25:00 GMT"): {Action: "terminate", At: 1793089500},
		event("Preempt", ""): nil, // it has begun, and was announced
	} {
		text = `{"DocumentIncarnation":2,"Events":[` + events + `]}`
		n, err := newMetadata(s.URL).scheduled(t.Context())
		if err != nil || (n == nil) != (want == nil) || n != nil && *n != *want {
			t.Errorf("%s: %v, %v", events, n, err)
		}
	}
	text = "<html>"
	if n, err := newMetadata(s.URL).scheduled(t.Context()); err == nil {
		t.Errorf("nonsense was read as %v", n)
	}
}

// An agent on Azure asks for scheduled events.
func TestNoticesOfAzureArePushed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"Events":[{"EventType":"Preempt","NotBefore":"Tue, 27 Oct 2026 08:25:00 GMT"}]}`)
	}))
	t.Cleanup(s.Close)
	t.Setenv(azureEnv, s.URL)
	c := newCluster(t, 1, twoCPUs, true)
	c.spec.Cloud, c.spec.Epoch = "azure", 2
	c.configure()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.head.Events(ctx, func(e agentapi.Event) error {
		if e.Info != nil && e.Info.Notice != nil && e.Info.Notice.At == 1793089500 {
			cancel()
		}
		return nil
	})
	if ctx.Err() == context.DeadlineExceeded {
		t.Fatalf("nothing was pushed: %v", err)
	}
}

// TestNoticesArePushed: an agent on AWS tells whoever follows it, and runs the
// hooks that the user has for it. On another cloud it does not ask.
func TestNoticesArePushed(t *testing.T) {
	service, address := startIMDS(t)
	t.Setenv(metadataEnv, address)
	t.Setenv(metadataOff, "")
	c := newCluster(t, 1, twoCPUs, true)
	hooks := []agentapi.Hook{{Run: "echo saved", Events: []string{"preemption"}}}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: -1, Hooks: &hooks}); err != nil {
		t.Fatal(err)
	}
	service.say(actionPath, `{"action": "terminate", "time": "2026-10-27T08:25:00Z"}`)
	c.spec.Cloud, c.spec.Epoch = "aws", 2
	c.configure()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.head.Events(ctx, func(e agentapi.Event) error {
		if e.Info != nil && e.Info.Notice != nil && e.Info.Notice.Action == "terminate" {
			cancel()
		}
		return nil
	})
	if ctx.Err() == context.DeadlineExceeded {
		t.Fatalf("nothing was pushed: %v", err)
	}
	awaitFile(t, "saved\n", c.nodes[0].home, ".sky/hooks/preemption.log")
	// Whether a program that fails now failed by itself is uncertain.
	for run, want := range map[string]bool{"exit 1": true, "exit 0": false} {
		if job := c.awaitEnd(c.submit(agentapi.JobSpec{Run: run})); job.Noticed != want {
			t.Errorf("%s: noticed is %v", run, job.Noticed)
		}
	}
}

// A notice that only the server hears has the same effect.
func TestNoticesOfTheServer(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	hooks := []agentapi.Hook{{Run: "echo saved", Events: []string{"preemption"}}}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: -1, Hooks: &hooks}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.head.Notice(t.Context(), agentapi.Notice{}); !isCode(err, agentapi.CodeInvalid) {
		t.Errorf("a notice of nothing: %v", err)
	}
	want := agentapi.Notice{Action: "terminate", At: 1e9}
	for range 2 {
		if info, err := c.head.Notice(t.Context(), want); err != nil || info.Notice == nil || *info.Notice != want {
			t.Errorf("%+v, %v", info, err)
		}
	}
	awaitFile(t, "saved\n", c.nodes[0].home, ".sky/hooks/preemption.log")
}

// TestAPodThatIsEvicted: the agents of a cluster of pods do what is to be done
// before their containers end, and say when it is done.
func TestAPodThatIsEvicted(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	hooks := []agentapi.Hook{{Run: "test ! -e $HOME/orchestrator/ended && echo saved", Events: []string{"preemption"}}, {Run: "echo other", Events: []string{"down"}}}
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: -1, Hooks: &hooks}); err != nil {
		t.Fatal(err)
	}
	c.spec.Cloud, c.spec.Epoch = "kubernetes", 2
	c.configure()
	for _, n := range c.nodes {
		awaitFile(t, fmt.Sprint(os.Getpid()), n.home, "orchestrator/"+agentapi.EndingPID) // agents are in this process
	}
	for i := len(c.nodes) - 1; i >= 0; i-- { // the head last: its hooks see the cluster whole
		n := c.nodes[i]
		if err := os.WriteFile(filepath.Join(n.home, "orchestrator", agentapi.EndingFile), []byte("600\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		awaitFile(t, "done", n.home, "orchestrator/"+agentapi.EndedFile)
	}
	log, err := os.ReadFile(filepath.Join(c.nodes[0].home, ".sky/hooks/preemption.log"))
	if err != nil || !strings.HasSuffix(string(log), "saved\n") || strings.Contains(string(log), "other") {
		t.Errorf("%q, %v", log, err)
	}
	info, err := c.head.Info(t.Context())
	if err != nil || info.Notice == nil || !info.Notice.Final() || time.Until(time.UnixMilli(int64(info.Notice.At*1000))) < 5*time.Minute {
		t.Errorf("%+v, %v", info.Notice, err)
	}
}

func TestPreemptionOnGoogleCloud(t *testing.T) {
	said := "FALSE"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/computeMetadata/v1/instance/preempted" || r.Header.Get("Metadata-Flavor") != "Google" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, said)
	}))
	t.Cleanup(s.Close)
	t.Setenv(googleMetadataEnv, strings.TrimPrefix(s.URL, "http://"))
	m := newGoogleMetadata()
	if n, err := m.preempted(t.Context()); n != nil || err != nil {
		t.Errorf("nothing is said: %v, %v", n, err)
	}
	said = "TRUE"
	first, err := m.preempted(t.Context())
	if err != nil || first == nil || !first.Final() || first.At <= seconds(time.Now()) {
		t.Fatalf("%v, %v", first, err)
	}
	if again, err := m.preempted(t.Context()); err != nil || *again != *first {
		t.Errorf("the same is told as another: %v, %v; %v", again, first, err)
	}
}
