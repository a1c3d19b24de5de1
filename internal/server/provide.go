package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

// Provide registers a function for every name in the route table, before the
// packages that know better register theirs over it: lists of what this server
// does not manage are empty, and the rest fails with what is wrong. Cancelling
// requests is the engine's own matter, dumps are the server's, and both are done
// here for good.
func Provide(e *requests.Engine) {
	for _, r := range Routes() {
		switch {
		case r.Name == "api_cancel":
			e.Handle(requestName(r.Name), r.schedule(), func(ctx context.Context, c *requests.Call) (any, error) { return cancel(ctx, e, c) })
		case r.Name == "create_debug_dump":
			e.Handle(requestName(r.Name), r.schedule(), nameDump)
		case r.Kind == Async && r.Empty != "":
			e.HandleRead(requestName(r.Name), func(context.Context, *requests.Call) (any, error) { return json.RawMessage(r.Empty), nil })
		case r.Kind == Async:
			e.Handle(requestName(r.Name), r.schedule(), func(context.Context, *requests.Call) (any, error) { return nil, notSupported(r.Path) })
		case r.Kind == Log:
			e.HandleLog(requestName(r.Name), func(context.Context, *requests.Call, io.Writer) (any, error) { return nil, notSupported(r.Path) })
		}
	}
}

// notSupported names the path, and the command that most often stands behind it.
func notSupported(path string) error {
	command := strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '_' }), " ")
	e := &api.Error{
		Type:    api.ErrNotSupported,
		Message: fmt.Sprintf("This server (version %s) does not support `sky %s` (%s) yet; nothing was changed.", api.ProductVersion, command, path),
	}
	if strings.HasPrefix(path, "/jobs/pool_") {
		e.Hint = "Without a pool, each of many jobs gets a cluster of its own: sky jobs launch --num-jobs 10 task.yaml"
	}
	return e
}

// cancel asks the requests named, or all active ones, to end, and returns those
// that were asked. Ids that are unknown or have ended are passed over.
func cancel(ctx context.Context, e *requests.Engine, c *requests.Call) (any, error) {
	var b api.APICancelBody
	if err := c.Decode(&b); err != nil {
		return nil, err
	}
	ids := []string{}
	if b.RequestIDs == nil {
		filter := state.RequestFilter{Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning}}
		if b.UserID != nil {
			filter.UserID = *b.UserID
		}
		active, err := e.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, r := range active {
			if r.Name != c.Name {
				ids = append(ids, r.ID)
			}
		}
	}
	for _, prefix := range b.RequestIDs {
		r, err := e.Resolve(ctx, prefix)
		switch status := resolveStatus(err); {
		case err == nil && !r.Status.Terminal() && !slices.Contains(ids, r.ID):
			ids = append(ids, r.ID)
		case err == nil || status == statusUnknown:
		case status == statusAmbiguous:
			return nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
		default:
			return nil, err
		}
	}
	if len(ids) == 0 {
		return ids, nil
	}
	done, err := e.Cancel(ctx, ids)
	if done == nil {
		done = []string{}
	}
	return done, err
}
