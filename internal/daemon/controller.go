package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/requests"
)

// forwardToController lets the jobs controller answer a request about managed jobs, where the
// configuration says that it looks after them; else f does.
func (d *daemon) forwardToController(f requests.Func) requests.Func {
	return func(ctx context.Context, c *requests.Call) (any, error) {
		call, wanted, err := d.farCall(c)
		if err != nil {
			return nil, err
		}
		if !wanted {
			return f(ctx, c)
		}
		defer c.Log.StopSpin()
		body := []byte(c.Body)
		if c.Name == reqJobsLaunch { // before anything is rented
			if body, err = d.admitted(ctx, call, body); err != nil {
				return nil, err
			}
		}
		logs := d.downloads.Dir(c.User.ID)
		if c.Name != reqJobsDownload {
			return d.controller.Answer(ctx, call, c.Name, body, logs, nil)
		}
		return d.downloads.Gather(ctx, c.User.ID, func(room *diskspace.Share) (dirs map[string]string, err error) {
			result, err := d.controller.Answer(ctx, call, c.Name, body, logs, room)
			if err != nil {
				return nil, err
			}
			return dirs, json.Unmarshal(result, &dirs)
		})
	}
}

// farLog is far for requests that are answered with a log.
func (d *daemon) farLog(f requests.LogFunc) requests.LogFunc {
	return func(ctx context.Context, c *requests.Call, w io.Writer) (any, error) {
		call, wanted, err := d.farCall(c)
		if err != nil {
			return nil, err
		}
		if !wanted {
			return f(ctx, c, w)
		}
		return d.controller.AnswerLog(ctx, call, c.Name, c.Body, w)
	}
}

// farCall is the call of a request, and whether the jobs controller answers it.
func (d *daemon) farCall(c *requests.Call) (call cluster.Call, wanted bool, err error) {
	var env api.Envelope
	if bytes.Contains(c.Body, []byte(`"mode"`)) { // most calls say nothing about it and are not read for it
		if err := c.Decode(&env); err != nil {
			return call, false, err
		}
	}
	if !d.controller.Wanted(env.OverrideConfig, sender(c.Scope)) {
		return call, false, nil
	}
	if d.store.Shared() { // a client asked for it, or what the database holds says so
		return call, false, &api.Error{Type: api.ErrNotSupported, Message: "jobs.controller: " + config.NoClusterBesideDatabase + "."}
	}
	call, err = callOf(c, nil)
	return call, true, err
}

// admitted is the body of a managed job's launch with the tasks as the
// administrator's policy wants them.
func (d *daemon) admitted(ctx context.Context, call cluster.Call, body []byte) ([]byte, error) {
	var b api.JobsLaunchBody
	fields := map[string]json.RawMessage{}
	err := json.Unmarshal(body, &b)
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if err != nil {
		return nil, err
	}
	if b.Task, err = d.admit(ctx, &call, policy.JobsLaunch, b.Task, nil, b.Envelope); err != nil {
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

// down gives a cluster back. The jobs controller goes only when it has nothing to
// do any more, or when somebody insists.
func (d *daemon) down(ctx context.Context, c cluster.Call, b api.StopBody) error {
	if b.ClusterName == d.controller.Name() && !b.Purge {
		done, err := d.controller.Ending(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	err := d.clusters.Down(ctx, c, b)
	d.buckets.Soon() // some may have been the cluster's alone
	return err
}
