package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

// testEnv is a server with a few verbs behind it, and a client of it.
type testEnv struct {
	t      testing.TB
	server *Server
	engine *requests.Engine
	store  *state.Store
	home   string
	url    string
	api    string // the client's version header; "" sends none
	as     string // who logs in, on a server of people
	block  chan struct{}

	listener *readsListener // of serving
}

// newTestEnv starts a server; change may adjust what it stands on.
func newTestEnv(t testing.TB, change ...func(*Deps)) *testEnv {
	return newTestEnvOf(t, (*testEnv).verbs, change...)
}

func newTestEnvOf(t testing.TB, verbs func(*testEnv), change ...func(*Deps)) *testEnv {
	t.Helper()
	env := &testEnv{t: t, home: t.TempDir(), api: "53", block: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if env.store, err = state.Open(ctx, filepath.Join(env.home, "sky.db")); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	env.engine = requests.New(env.store, requests.Options{LogDir: filepath.Join(env.home, "logs"), Logger: quiet})
	Provide(env.engine)
	verbs(env)
	if err := env.engine.Start(ctx); err != nil {
		t.Fatal(err)
	}
	d := Deps{Engine: env.engine, Store: env.store, Logger: quiet, Self: state.User{ID: "5e1f", Name: "server"},
		InstanceID: "instance", BuildID: "build", Home: env.home,
		OwnMachines: &machines{pools: map[string]map[string]any{}, keys: map[string]string{}}}
	for _, c := range change {
		c(&d)
	}
	if d.Gate == nil {
		d.Gate = everybody(t, env.store)
	}
	env.server = New(d)
	hs := httptest.NewServer(env.server)
	env.url = hs.URL
	t.Cleanup(func() {
		env.server.Drain()
		down, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		if err := env.engine.Shutdown(down); err != nil {
			t.Error(err)
		}
		env.server.Close()
		hs.CloseClientConnections()
		hs.Close()
		cancel()
		env.store.Close()
	})
	return env
}

// everybody is the gate of a server without logins that takes calls from anywhere; the
// owner's are those of this process.
func everybody(t testing.TB, store *state.Store) *auth.Gate {
	t.Helper()
	gate, err := auth.New(t.Context(), store, auth.Options{Owner: auth.Owner{Exposed: true, OpenLoopback: true}})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// people makes a server that users with these roles log in to, by the header
// X-Test.
func people(t testing.TB, roles map[string]string) func(*Deps) {
	return func(d *Deps) {
		t.Helper()
		loopback := netip.MustParsePrefix("127.0.0.0/8")
		gate, err := auth.New(t.Context(), d.Store, auth.Options{
			DefaultRole: func() string { return "viewer" }, ServiceAccounts: true,
			Proxy: auth.Proxy{Enabled: true, Explicit: true, Header: "X-Test", Trusted: []netip.Prefix{loopback}},
			Owner: auth.Owner{OpenLoopback: true}, // the proxy is this process
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Gate = gate
		for name, role := range roles {
			if err := d.Store.Users().Create(t.Context(), state.User{ID: auth.UserID(name), Name: name, Role: role}, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func handle() *api.Handle {
	return &api.Handle{ClusterName: "c", ClusterNameOnCloud: "c-1", LaunchedNodes: 1,
		LaunchedResources: &api.LaunchedResources{Infra: "aws/us-east-1", InstanceType: "m6i.large"},
		StableIPs:         [][2]string{{"10.0.0.1", "1.2.3.4"}}, StableSSHPorts: []int{22}}
}

// verbs are stand-ins that show what reached them.
func (env *testEnv) verbs() {
	e := env.engine
	one := 1
	e.HandleRead("sky.status", func(_ context.Context, c *requests.Call) (any, error) {
		var b api.StatusBody
		if err := c.Decode(&b); err != nil {
			return nil, err
		}
		records := []api.StatusRecord{}
		for _, n := range b.ClusterNames {
			if n == "nosuch" {
				c.Log.Printf("Cluster(s) not found: %s.", n)
				continue
			}
			r := api.StatusRecord{Name: n, Status: api.ClusterAutostopping, Autostop: -1, Labels: map[string]string{}, Handle: handle()}
			if n == "bare" {
				r.Handle = nil
			}
			records = append(records, r)
		}
		return records, nil
	})
	e.Handle("sky.launch", api.ScheduleLong, func(_ context.Context, c *requests.Call) (any, error) {
		var b api.LaunchBody
		if err := c.Decode(&b); err != nil {
			return nil, err
		}
		c.Log.Spin("[bold cyan]Launching[/]")
		c.Log.Printf("as %s (%s)", c.User.ID, c.User.Name)
		if b.Dryrun {
			return api.LaunchResult{}, nil
		}
		return api.LaunchResult{JobID: &one, Handle: handle()}, nil
	})
	e.Handle("sky.start", api.ScheduleLong, func(context.Context, *requests.Call) (any, error) { return handle(), nil })
	e.Handle("sky.exec", api.ScheduleLong, func(_ context.Context, c *requests.Call) (any, error) {
		return nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "Cluster " + c.ClusterName + " does not exist.", Hint: "sky status lists clusters."}
	})
	e.Handle("sky.stop", api.ScheduleShort, func(ctx context.Context, c *requests.Call) (any, error) {
		c.Log.Printf("stopping")
		select {
		case <-env.block:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	e.Handle("sky.down", api.ScheduleShort, func(_ context.Context, c *requests.Call) (any, error) {
		return nil, &api.Error{Type: api.ErrClusterNotUp, Message: "not up", Attributes: map[string]any{"cluster_status": api.ClusterStopped, "handle": "x"}}
	})
	e.Handle("sky.queue", api.ScheduleShort, func(_ context.Context, c *requests.Call) (any, error) {
		return nil, fmt.Errorf("some reason")
	})
	e.HandleLog("sky.logs", func(ctx context.Context, c *requests.Call, out io.Writer) (any, error) {
		var b api.LogsBody
		if err := c.Decode(&b); err != nil {
			return nil, err
		}
		if b.ClusterName == "nosuch" {
			return nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "no such cluster"}
		}
		fmt.Fprintln(out, "line one")
		fmt.Fprintln(out, "line two")
		if b.ClusterName == "slow" {
			select {
			case <-env.block:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			fmt.Fprintln(out, "line three")
		}
		return 100, nil
	})
}

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) id() string { return r.header.Get(api.HeaderRequestID) }

func (r reply) json(t testing.TB) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, r.body)
	}
	return v
}

// call sends a request; headers are pairs.
func (env *testEnv) call(method, path, body string, headers ...string) reply {
	env.t.Helper()
	resp := env.send(env.t.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		env.t.Fatalf("%s %s: %v", method, path, err)
	}
	got := reply{resp.StatusCode, resp.Header, string(b)}
	conforms(env.t, method, path, got)
	return got
}

func (env *testEnv) send(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	env.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, env.url+path, in)
	if err != nil {
		env.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if env.api != "" {
		req.Header.Set(api.HeaderAPIVersion, env.api)
		req.Header.Set(api.HeaderVersion, "1.0.0-dev0")
	}
	if env.server.Gate.Options().Demanded() {
		req.Header.Set("X-Forwarded-For", "203.0.113.9") // not from here, so a login is demanded
		req.Header.Set("X-Test", env.as)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		env.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// ask submits a request and returns its id.
func (env *testEnv) ask(path, body string) string {
	env.t.Helper()
	r := env.call(post, path, body)
	if r.status != 200 || r.body != "null" {
		env.t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	return r.id()
}

// payload fetches the record of a request when it has ended.
func (env *testEnv) payload(id string) (int, api.RequestPayload) {
	env.t.Helper()
	r := env.call(get, "/api/get?request_id="+id, "")
	var p api.RequestPayload
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		env.t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	resultConforms(env.t, env.api, p)
	return r.status, p
}
