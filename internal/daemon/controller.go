package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/requests"
)

// newController makes a controller, which rents nothing yet.
func (d *daemon) newController(kind *controller.Kind, connector *remote.Connector) *controller.Controller {
	return controller.New(controller.Deps{
		Kind: kind, Store: d.store, Providers: d.providers, Executor: d.executor, Clusters: d.clusters, Remote: connector,
		Config: d.settings.current, Self: d.self, Dir: filepath.Join(d.dir, "controller"), Log: d.log,
		Far: os.Getenv(controller.EnvFar) == "1",
	})
}

// forwardToController lets a controller answer a request about what it looks after, where
// the configuration says that it does; else f answers.
func (d *daemon) forwardToController(to *controller.Controller, f requests.Func) requests.Func {
	return func(ctx context.Context, c *requests.Call) (any, error) {
		call, wanted, err := d.farCall(to, c)
		if err != nil {
			return nil, err
		}
		if !wanted {
			return f(ctx, c)
		}
		defer c.Log.StopSpin()
		body := []byte(c.Body)
		if p, ok := judged[c.Name]; ok { // before anything is rented
			if body, err = d.admitted(ctx, call, p, body); err != nil {
				return nil, err
			}
		}
		logs := d.downloads.Dir(c.User.ID)
		if c.Name != reqJobsDownload && c.Name != reqServeDownload {
			return to.Answer(ctx, call, c.Name, body, logs, nil)
		}
		alone := false // it is one folder, and not one for each job
		dirs, err := d.downloads.Gather(ctx, c.User.ID, func(room *diskspace.Share) (dirs map[string]string, err error) {
			result, err := to.Answer(ctx, call, c.Name, body, logs, room)
			if err != nil {
				return nil, err
			}
			var dir string
			if alone = json.Unmarshal(result, &dir) == nil; alone {
				return map[string]string{"": dir}, nil
			}
			return dirs, json.Unmarshal(result, &dirs)
		})
		if alone && err == nil {
			return dirs[""], nil
		}
		return dirs, err
	}
}

// judged are the requests whose tasks the administrator's policy judges before they are
// handed over, and what they are to it.
var judged = map[string]string{reqJobsLaunch: policy.JobsLaunch, reqServeUp: policy.ServeUp, reqServeUpdate: policy.ServeUpdate}

// farLog is far for requests that are answered with a log.
func (d *daemon) farLog(to *controller.Controller, f requests.LogFunc) requests.LogFunc {
	return func(ctx context.Context, c *requests.Call, w io.Writer) (any, error) {
		call, wanted, err := d.farCall(to, c)
		if err != nil {
			return nil, err
		}
		if !wanted {
			return f(ctx, c, w)
		}
		return to.AnswerLog(ctx, call, c.Name, c.Body, w)
	}
}

// farCall is the call of a request, and whether a controller answers it.
func (d *daemon) farCall(to *controller.Controller, c *requests.Call) (call cluster.Call, wanted bool, err error) {
	var env api.Envelope
	if bytes.Contains(c.Body, []byte(`"mode"`)) { // most calls say nothing about it and are not read for it
		if err := c.Decode(&env); err != nil {
			return call, false, err
		}
	}
	if !to.Wanted(env.OverrideConfig, sender(c.Scope)) {
		return call, false, nil
	}
	if d.store.Shared() { // a client asked for it, or what the database holds says so
		return call, false, &api.Error{Type: api.ErrNotSupported, Message: to.Kind.Section() + ".controller: " + config.NoClusterBesideDatabase(to.Kind.Section()) + "."}
	}
	call, err = callOf(c, nil)
	return call, true, err
}

// admitted is the body of a call that hands over tasks, as the administrator's policy
// wants them.
func (d *daemon) admitted(ctx context.Context, call cluster.Call, name string, body []byte) ([]byte, error) {
	var b struct {
		Task string `json:"task"`
		api.Envelope
	}
	fields := map[string]json.RawMessage{}
	err := json.Unmarshal(body, &b)
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if err != nil {
		return nil, err
	}
	if b.Task, err = d.admit(ctx, &call, name, b.Task, nil, b.Envelope); err != nil {
		return nil, err
	}
	if err := d.executor.ValidateDag(ctx, b.Task); err != nil {
		return nil, err
	}
	if err := execution.NoNamedVolumes(b.Task); err != nil {
		return nil, err
	}
	if fields["task"], err = json.Marshal(b.Task); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// reserved refuses what users may not do to controllers.
func reserved(name, doing string) error {
	kind := controller.Reserved(name)
	if kind == "" {
		return nil
	}
	return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("Cluster %q is the controller of %s. %s is not possible.", name, kind, doing)}
}

// down gives a cluster back. A controller goes only when it has nothing to do any more,
// or when somebody insists.
func (d *daemon) down(ctx context.Context, c cluster.Call, b api.StopBody) error {
	if at := d.controllerNamed(b.ClusterName); at != nil && !b.Purge {
		done, err := at.Ending(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	err := d.clusters.Down(ctx, c, b)
	d.buckets.Soon() // some may have been the cluster's alone
	return err
}

// controllerNamed is the controller whose cluster has that name; nil: none has.
func (d *daemon) controllerNamed(name string) *controller.Controller {
	for _, c := range []*controller.Controller{d.jobsController, d.serveController} {
		if c.Name() == name {
			return c
		}
	}
	return nil
}
