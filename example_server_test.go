package sky_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
)

// exampleServer runs an API server in this process, whose clusters are made up,
// and gives a client of it. Programs write sky.New(sky.Options{}).
func exampleServer() (c *sky.Client, end func()) {
	dir, err := os.MkdirTemp("", "sky-example-")
	must(err)
	store, err := state.Open(context.Background(), filepath.Join(dir, "sky.db"))
	must(err)
	quiet := slog.New(slog.DiscardHandler)
	engine := requests.New(store, requests.Options{LogDir: filepath.Join(dir, "logs"), Logger: quiet})
	server.Provide(engine)
	madeUpClusters(engine)
	must(engine.Start(context.Background()))
	gate, err := auth.New(context.Background(), store, auth.Options{Owner: auth.Owner{OpenLoopback: true}})
	must(err)
	s := server.New(server.Deps{Gate: gate, Engine: engine, Store: store, Logger: quiet, Self: state.User{ID: "5e1f", Name: "server"}, Home: dir})
	hs := httptest.NewServer(s)
	c, err = sky.New(sky.Options{Endpoint: hs.URL, HTTPClient: hs.Client(), Environ: []string{"HOME=" + dir, "SKYPILOT_USER_ID=abcd1234", "SKYPILOT_USER=me"}})
	must(err)
	return c, func() {
		s.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		must(engine.Shutdown(ctx))
		s.Close()
		hs.CloseClientConnections()
		hs.Close()
		must(store.Close())
		os.RemoveAll(dir)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// madeUpClusters answers as if clusters were there.
func madeUpClusters(e *requests.Engine) {
	one := 1
	record := func(name string) api.StatusRecord {
		text := "1x local"
		return api.StatusRecord{Name: name, Status: "UP", Autostop: -1, Labels: map[string]string{}, ResourcesStr: text, ResourcesStrFull: text}
	}
	e.Handle("sky.launch", api.ScheduleLong, func(_ context.Context, c *requests.Call) (any, error) {
		var b api.LaunchBody
		if err := c.Decode(&b); err != nil {
			return nil, err
		}
		c.Log.Printf("Launching cluster %s", b.ClusterName)
		return api.LaunchResult{JobID: &one, Handle: &api.Handle{ClusterName: b.ClusterName}}, nil
	})
	e.Handle("sky.exec", api.ScheduleLong, func(_ context.Context, c *requests.Call) (any, error) {
		return nil, &api.Error{Type: api.ErrClusterDoesNotExist, Message: "Cluster " + c.ClusterName + " does not exist."}
	})
	e.Handle("sky.status", api.ScheduleShort, func(_ context.Context, c *requests.Call) (any, error) {
		return []api.StatusRecord{record("dev"), record("train")}, nil
	})
	e.Handle("sky.start", api.ScheduleLong, func(ctx context.Context, _ *requests.Call) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	e.HandleLog("sky.logs", func(_ context.Context, _ *requests.Call, w io.Writer) (any, error) {
		fmt.Fprint(w, "step 1\nstep 2\n")
		return api.ExitJobSucceeded, nil
	})
	e.Handle("sky.jobs.launch", api.ScheduleLong, func(context.Context, *requests.Call) (any, error) {
		return json.RawMessage(`{"job_id":7,"handle":null}`), nil
	})
	e.Handle("sky.jobs.wait", api.ScheduleLong, func(context.Context, *requests.Call) (any, error) { return 0, nil })
}
