//go:build unix

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
	"github.com/skypilot-go/sky/internal/volumes"
)

// bed is the server without its HTTP side, in virtual time: it rents on
// FluffyCloud's model, and its nodes are in memory.
type bed struct {
	*testbed.Bed
	t   *testing.T
	s   *testbed.Server
	d   *daemon
	ctx context.Context // the server's life
}

// newBed starts one with that configuration, inside of a synctest bubble; change adjusts
// its cloud.
func newBed(t *testing.T, text string, change ...func(*model.Config)) *bed {
	t.Helper()
	b := &bed{Bed: testbed.New(t, change...), t: t}
	s := b.Boot(failpoint.Endless)
	home, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if err := os.MkdirAll(filepath.Join(home, ".sky", "api_server"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".sky", "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{o: Options{Home: home}, dir: filepath.Join(home, ".sky", "api_server"), log: log, self: testbed.Ann,
		store: s.Store, providers: s.Providers, provision: s.Provision, metrics: server.NewMetrics(), installation: "testbed"}
	b.s, b.d, b.ctx = s, d, s.Context()
	var err error
	if d.settings, err = loadSettings(home, log); err != nil {
		t.Fatal(err)
	}
	d.disk = newDisk(d.dir, log)
	d.catalogs = catalog.NewStore(catalog.StoreOptions{Dir: filepath.Join(home, "catalogs"), Offline: true})
	d.uploads = &server.Uploads{Home: home, Store: d.store}
	d.downloads = server.NewDownloads(home, d.store)
	d.engine = requests.New(d.store, requests.Options{ServerID: d.serverID(), LogDir: filepath.Join(d.dir, "request_logs"), Logger: log, Files: d.files})
	d.clusters = cluster.New(cluster.Deps{Store: d.store, Providers: d.providers, Provision: d.provision, Remote: s.Remote, Log: log, ServerID: d.serverID(),
		CancelRequests: d.cancelRequests, OncePer: d.oncePer})
	d.volumes = volumes.New(volumes.Deps{Store: d.store, Providers: d.providers, Installation: d.installation, ServerID: d.serverID(), Log: log, Config: d.settings.current})
	d.buckets = buckets.New(buckets.Deps{Store: d.store, Remote: s.Remote, ServerID: d.serverID(), Dir: filepath.Join(home, "buckets"), Log: log, Config: d.settings.current})
	d.executor = execution.New(execution.Deps{Store: d.store, Providers: d.providers, Provision: d.provision, Remote: s.Remote, Clusters: d.clusters,
		Volumes: d.volumes, Buckets: d.buckets, Catalogs: d.catalogs, Log: log, BuildID: testbed.Build})
	d.taskFiles = d.newTaskFiles()
	d.jobs = d.newJobs()
	d.services = d.newServices()
	d.services.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	d.clusters.Ended = d.jobs.Ended
	d.jobsController, d.serveController = d.newController(controller.Jobs, s.Remote), d.newController(controller.Services, s.Remote)
	d.register()
	if err := d.engine.Start(b.ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.engine.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		s.End()
	})
	return b
}

// submit sends a request of Ann's.
func (b *bed) submit(name, clusterName string, body any) string {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.d.engine.Submit(b.ctx, requests.Submission{Name: name, User: testbed.Ann, ClusterName: clusterName, Body: text, Files: state.RequestFiles{Own: true}})
	if err != nil {
		b.t.Fatal(err)
	}
	return r.ID
}

// wait is the end of a request: its result, or how it failed.
func (b *bed) wait(id string, result any) error {
	b.t.Helper()
	r, err := b.d.engine.Wait(b.ctx, id)
	if err != nil {
		return err
	}
	if r.Error != nil {
		var e api.ErrorRecord
		if err := json.Unmarshal(r.Error, &e); err != nil {
			b.t.Fatal(err)
		}
		return &api.Error{Type: e.Type, Message: e.Message}
	}
	if r.Status != api.RequestSucceeded {
		return context.Canceled
	}
	if result != nil {
		return json.Unmarshal(r.ReturnValue, result)
	}
	return nil
}

// do is submit and wait.
func (b *bed) do(name, clusterName string, body, result any) error {
	b.t.Helper()
	return b.wait(b.submit(name, clusterName, body), result)
}

// said is what a request printed.
func (b *bed) said(id string) string {
	b.t.Helper()
	var out bytes.Buffer
	if err := b.d.engine.Stream(b.ctx, id, requests.StreamOptions{Plain: true}, &out); err != nil {
		b.t.Fatal(err)
	}
	return out.String()
}

// log is a request that is answered with a log, and its exit code.
func (b *bed) log(name string, body any) (text string, r *state.Request) {
	b.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	var id string
	if err := b.d.engine.RunLog(b.ctx, requests.Submission{Name: name, User: testbed.Ann, Body: raw}, &out, func(got string) { id = got }); err != nil {
		b.t.Fatal(err)
	}
	if r, err = b.d.engine.Resolve(b.ctx, id); err != nil {
		b.t.Fatal(err)
	}
	return out.String(), r
}

// launch brings a cluster up that runs a script.
func (b *bed) launch(name, script string) {
	b.t.Helper()
	body := api.LaunchBody{ClusterName: name, Task: "run: |\n  " + script + "\nresources: {infra: fluffycloud, cpus: 2+}\n"}
	if err := b.do(reqLaunch, name, body, nil); err != nil {
		b.t.Fatal(err)
	}
}

// forget removes the record of a cluster, so that its machines are strays.
func (b *bed) forget(name string) *state.Cluster {
	b.t.Helper()
	c := b.Cluster(name)
	if err := b.Store.Clusters().Delete(context.Background(), name, c.Hash); err != nil {
		b.t.Fatal(err)
	}
	return c
}
