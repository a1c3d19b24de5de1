package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
)

// validate answers /validate.
func (d *daemon) validate(ctx context.Context, body api.DagBody, user state.User) error {
	c, err := d.settings.current().Request(body.OverrideConfig, d.senderOf(ctx, user))
	if err != nil {
		return err
	}
	if body.Dag, _, err = d.applyPolicy(ctx, c, policy.Validate, body.Dag, body.RequestOptions, user, body.Envelope, nil); err != nil {
		return err
	}
	return d.executor.Validate(ctx, body)
}

// provisionLogs shows the log of the request that last brought a cluster up.
func (d *daemon) provisionLogs(ctx context.Context, q server.ProvisionLogs, w io.Writer) error {
	f := state.RequestFilter{ClusterName: q.Cluster, Names: []string{reqLaunch, reqStart}, Scope: q.Scope, Limit: 1}
	var rows []*state.Request
	// The last launch may have found the cluster up; its log shows nothing of machines.
	if c, err := d.store.Clusters().Get(ctx, q.Cluster); err == nil {
		if id := c.Notes.BroughtUpBy; id != "" {
			of := f
			of.IDPrefixes, of.Names = []string{id}, nil
			if rows, err = d.engine.List(ctx, of); err != nil {
				return err
			}
		}
	}
	if len(rows) == 0 {
		var err error
		if rows, err = d.engine.List(ctx, f); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		e := &api.Error{
			Type:    api.ErrClusterDoesNotExist,
			Message: fmt.Sprintf("No launch of cluster %q is on record: none was made, or its log has expired.", q.Cluster),
			Err:     state.ErrNotFound,
		}
		if _, err := d.clusters.Get(ctx, q.Cluster); errors.Is(err, state.ErrNotFound) {
			if near := d.clusters.Similar(ctx, q.Cluster); len(near) > 0 {
				e.Message += " Did you mean " + strings.Join(near, " or ") + "?"
			}
		}
		return e
	}
	return d.engine.Stream(ctx, rows[0].ID, requests.StreamOptions{Tail: q.Tail, Follow: q.Follow, Plain: true}, w)
}
