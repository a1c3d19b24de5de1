package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// A route is a request that the controller's server answers.
type route struct {
	path  string
	empty string // the answer while there is no controller; "": it fails
	talks bool   // what it says while it runs is for the user
	log   bool   // it is answered with a log
	exits bool   // whose result is an exit code

	launches bool // it hands over a task, and brings the controller up
	only     bool // if there is one
	gathers  bool // it gathers files that are then copied here
}

// Answer lets the controller's server answer a request: its name, and its body as
// it is recorded. A launch brings the controller up. logs is the folder for what
// is downloaded.
func (c *Controller) Answer(ctx context.Context, call cluster.Call, name string, body []byte, logs string, room *diskspace.Share) (json.RawMessage, error) {
	r := c.Kind.routes[name]
	if r.launches {
		return c.launch(ctx, call, r, body)
	}
	var b struct {
		Refresh bool `json:"refresh"`
	}
	_ = json.Unmarshal(body, &b)
	var result json.RawMessage
	err := c.reach(ctx, call, b.Refresh, func(client *sky.Client) (err error) {
		if result, err = c.send(ctx, call, client, r, body); err != nil || !r.gathers {
			return err
		}
		result, err = c.fetched(ctx, client, result, logs, room)
		return err
	})
	if r.empty != "" && c.nothing(err) {
		return json.RawMessage(r.empty), nil
	}
	return result, err
}

// fetched copies logs that the far server gathered to this one, and names the
// copies in the result.
func (c *Controller) fetched(ctx context.Context, client *sky.Client, result json.RawMessage, logs string, room *diskspace.Share) (json.RawMessage, error) {
	var far map[string]string
	var single string
	alone := json.Unmarshal(result, &single) == nil
	if alone {
		far = map[string]string{"": single}
	} else if err := json.Unmarshal(result, &far); err != nil {
		return nil, fmt.Errorf("the %s's answer is not understood: %w", c.Kind.name, err)
	}
	var dirs []string
	for _, d := range far {
		dirs = append(dirs, d)
	}
	near, err := client.DownloadWithin(ctx, dirs, filepath.Dir(logs), room.Take)
	if err != nil {
		return nil, err
	}
	if alone {
		return json.Marshal(near[single])
	}
	for id, d := range far {
		far[id] = near[d]
	}
	return json.Marshal(far)
}

// nothing reports whether an error says that the controller has nothing to do: there is
// none, or it has stopped because of that and is started by new work alone.
func (c *Controller) nothing(err error) bool {
	if errors.Is(err, c.Kind.none) {
		return true
	}
	e, ok := errors.AsType[*api.Error](err)
	return ok && c.Kind.wakes == "" && e.Type == api.ErrClusterNotUp && e.Attributes["cluster_status"] == string(api.ClusterStopped)
}

// launch hands a task over, with its files.
func (c *Controller) launch(ctx context.Context, call cluster.Call, r route, body []byte) (json.RawMessage, error) {
	c.handing.RLock()
	defer c.handing.RUnlock()
	if r.only {
		if cl, err := c.look(ctx); err != nil {
			return nil, err
		} else if cl == nil || !cl.EverUp {
			return nil, c.Kind.none
		}
	} else if before := c.Kind.before(c, ctx, call.Scope); before != "" && call.Attempt <= 1 {
		fmt.Fprintln(call.Out, before)
	}
	var result json.RawMessage
	err := c.retry(ctx, call, handTimeout, func() error {
		cl, err := c.Ensure(ctx, call)
		if err != nil {
			return err
		}
		client, err := c.client(cl, call)
		if err != nil {
			return err
		}
		if call.Attempt > 1 { // the task may have been handed over in an earlier life
			known, err := client.Known(ctx, call.RequestID)
			if err != nil {
				return err
			}
			if known {
				result, err = c.follow(ctx, call, sky.RequestOf[json.RawMessage](client, call.RequestID), r)
				return err
			}
		}
		packed, err := c.withFiles(ctx, call, client, body)
		if err != nil {
			return err
		}
		result, err = c.send(ctx, call, client, r, packed)
		return err
	})
	return result, err
}

// withFiles uploads the files of a launch's tasks and returns a body that names
// the upload.
func (c *Controller) withFiles(ctx context.Context, call cluster.Call, client *sky.Client, body []byte) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	var text string
	err := json.Unmarshal(body, &fields)
	if err == nil {
		err = json.Unmarshal(fields["task"], &text)
	}
	if err != nil {
		return nil, err
	}
	dag, err := task.ParseSent("task", []byte(text))
	if err != nil {
		return nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	files, _, err := upload.Collect(dag, call.Files)
	if e, ok := errors.AsType[*api.Error](err); ok {
		return nil, e
	}
	if err != nil {
		return nil, &api.Error{Type: api.ErrFileNotFound, Message: err.Error(), Err: err}
	}
	delete(fields, "file_mounts_blob_id")
	if len(files) > 0 {
		call.Out.Spin("Uploading files to the " + c.Kind.name)
		blob, err := client.Upload(ctx, files, nil)
		call.Out.StopSpin()
		if err != nil {
			return nil, err
		}
		fields["file_mounts_blob_id"], _ = json.Marshal(blob)
		wire, err := dag.YAML()
		if err != nil {
			return nil, err
		}
		if fields["task"], err = json.Marshal(string(wire)); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// send makes a call of the far server under the id that it has here.
func (c *Controller) send(ctx context.Context, call cluster.Call, client *sky.Client, r route, body []byte) (json.RawMessage, error) {
	body, err := c.ownAffairs(body)
	if err != nil {
		return nil, err
	}
	req, err := client.Send(ctx, call.RequestID, r.path, body)
	if err != nil {
		return nil, err
	}
	return c.follow(ctx, call, req, r)
}

// ownAffairs is a body whose configuration says nothing about the controller any
// more.
func (c *Controller) ownAffairs(body []byte) ([]byte, error) {
	const override = "override_skypilot_config"
	fields, config, section, about := map[string]json.RawMessage{}, map[string]json.RawMessage{}, map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	if json.Unmarshal(fields[override], &config) != nil || json.Unmarshal(config[c.Kind.section], &section) != nil || json.Unmarshal(section["controller"], &about) != nil {
		return body, nil // there is none
	}
	for _, key := range []string{"mode", "consolidation_mode", "resources", "autostop", "high_availability"} {
		delete(about, key)
	}
	var err error
	for _, up := range []struct {
		in  map[string]json.RawMessage
		key string
		put any
	}{{section, "controller", about}, {config, c.Kind.section, section}, {fields, override, config}} {
		if up.in[up.key], err = json.Marshal(up.put); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// follow waits for a request on the far server. One that nobody wants any more is
// cancelled there, too.
func (c *Controller) follow(ctx context.Context, call cluster.Call, req *sky.Request[json.RawMessage], r route) (result json.RawMessage, err error) {
	wait := func() {
		if r.talks {
			err = req.Stream(ctx, call.Out, sky.StreamOptions{Follow: true})
		}
		if err == nil {
			result, err = req.Get(ctx)
		}
	}
	if call.Rest != nil {
		call.Rest(wait)
	} else {
		wait()
	}
	if ctx.Err() == nil {
		return result, err
	}
	if !errors.Is(context.Cause(ctx), state.ErrHandover) {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		if err := req.Cancel(after); err != nil {
			c.Log.WarnContext(ctx, "a request was not cancelled on the "+c.Kind.name, "request", req.ID(), "err", err)
		}
	}
	return nil, context.Cause(ctx)
}

// AnswerLog lets the controller's server answer a log request. The far request is kept
// in the call's state, so that a replay is that request's.
func (c *Controller) AnswerLog(ctx context.Context, call cluster.Call, name string, body []byte, w io.Writer) (any, error) {
	r := c.Kind.routes[name]
	var b struct {
		Refresh bool `json:"refresh"`
		Tail    *int `json:"tail"`
	}
	_ = json.Unmarshal(body, &b)
	body, err := c.ownAffairs(body)
	if err != nil {
		return nil, err
	}
	tail := 0
	if b.Tail != nil {
		tail = *b.Tail
	}
	var kept struct {
		Far string `json:"far"`
	}
	if call.Load != nil {
		_ = json.Unmarshal(call.Load(), &kept)
	}
	var code int
	err = c.reach(ctx, call, b.Refresh, func(client *sky.Client) (err error) {
		if kept.Far != "" {
			return client.StreamRequest(ctx, kept.Far, w, sky.StreamOptions{Follow: true})
		}
		l := client.SendLog(r.path, body, tail)
		out := &noting{w: w, first: func() error {
			state, err := json.Marshal(map[string]string{"far": l.ID()})
			if err != nil || call.Save == nil {
				return err
			}
			return call.Save(ctx, state)
		}}
		if err := l.Stream(ctx, out, sky.StreamOptions{Follow: true}); err != nil {
			return err
		}
		code, err = l.ExitCode(ctx)
		return err
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !r.exits {
		return nil, err
	}
	return code, err
}

// noting calls first before the first byte is written.
type noting struct {
	w     io.Writer
	first func() error
}

func (n *noting) Write(p []byte) (int, error) {
	if n.first != nil {
		if err := n.first(); err != nil {
			return 0, err
		}
		n.first = nil
	}
	return n.w.Write(p)
}

// How long the far server is tried before an answer fails, or a task is not handed
// over.
const (
	answerTimeout = time.Minute
	handTimeout   = 5 * time.Minute
	retryPause    = time.Second
)

// reach calls f with a client of the controller's server. A server that has gone
// away although there is work is started again; one that rests is not, unless
// wake says so.
func (c *Controller) reach(ctx context.Context, call cluster.Call, wake bool, f func(*sky.Client) error) error {
	tried := false
	return c.retry(ctx, call, answerTimeout, func() error {
		cl, err := c.look(ctx)
		switch {
		case err != nil:
			return err
		case cl == nil || !cl.EverUp:
			return c.Kind.none
		case wake && !tried, tried && cl.Status == api.ClusterUp:
			if tried {
				if job, err := c.serverJob(ctx, cl); err == nil && rested(job) && !wake {
					return c.notUp(cl, ", has nothing to do and is about to stop")
				}
			}
			if cl, err = c.Ensure(ctx, call); err != nil {
				return err
			}
		case cl.Status != api.ClusterUp:
			return c.notUp(cl, "")
		}
		tried = true
		client, err := c.client(cl, call)
		if err != nil {
			return err
		}
		return f(client)
	})
}

// retry repeats f while the far server does not answer. Between two tries the
// cluster is looked at, so that the next one sees what became of it.
func (c *Controller) retry(ctx context.Context, call cluster.Call, limit time.Duration, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if err == nil || ctx.Err() != nil || !unanswered(err) {
			return err
		}
		if time.Since(began) > limit {
			return &api.Error{
				Type: api.ErrRuntime, Err: err,
				Message: fmt.Sprintf("The %s %s does not answer: %v", c.Kind.name, c.Name(), plain(err)),
				Hint:    "Its work goes on. See how it is with: sky status --refresh " + c.Name(),
			}
		}
		call.Out.Spin("Waiting for the " + c.Kind.name + " to answer")
		_, _ = c.Clusters.Refresh(ctx, c.Name())
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
		call.Out.StopSpin()
	}
}

// unanswered reports that a call got no answer: sending it again under its id is
// harmless.
func unanswered(err error) bool {
	if lost, ok := errors.AsType[*sky.StatusError](err); ok {
		return lost.Code == http.StatusServiceUnavailable
	}
	_, lost := errors.AsType[*sky.ConnectError](err)
	return lost
}

// plain is an error without the address that stands for the way there.
func plain(err error) string {
	if lost, ok := errors.AsType[*url.Error](err); ok {
		err = lost.Err
	} else if lost, ok := errors.AsType[*sky.ConnectError](err); ok {
		err = lost.Err
	}
	return err.Error()
}

// ask makes a call of this server's own that changes nothing.
func (c *Controller) ask(ctx context.Context, cl *state.Cluster, path string, body, result any) error {
	client, err := c.client(cl, cluster.Call{User: c.Self})
	if err != nil {
		return err
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := client.Send(ctx, uuid.NewString(), path, b)
	if err != nil {
		return err
	}
	text, err := req.Get(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}
