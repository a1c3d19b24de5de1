package daemon

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/workspaces"
)

// registerWorkspaces makes the verbs of workspaces and of the server's
// configuration known to the engine. Who may call them the route table says.
func (d *daemon) registerWorkspaces() {
	e := d.engine
	e.HandleRead("sky.workspaces.get", verb(func(_ context.Context, c cluster.Call, _ api.Envelope) (any, error) {
		return workspaces.Of(d.settings.asWritten()).Seen(c.Scope.Sees), nil
	}))
	e.Handle("sky.workspaces.create", api.ScheduleShort, verb(func(ctx context.Context, c cluster.Call, b api.WorkspaceBody) (any, error) {
		return d.changeWorkspace(ctx, func(all workspaces.All) (string, map[string]any, error) {
			if err := all.Create(b.WorkspaceName); err != nil && !(c.Attempt > 1 && reflect.DeepEqual(all[b.WorkspaceName], orEmpty(b.Config))) {
				return "", nil, err // unless this request made it in an earlier life
			}
			return b.WorkspaceName, orEmpty(b.Config), d.tellStrangers(ctx, c, b.Config)
		})
	}))
	e.Handle("sky.workspaces.update", api.ScheduleShort, verb(func(ctx context.Context, c cluster.Call, b api.WorkspaceBody) (any, error) {
		return d.changeWorkspace(ctx, func(all workspaces.All) (string, map[string]any, error) {
			live, err := d.livingIn(ctx, b.WorkspaceName)
			if err == nil {
				err = all.Update(b.WorkspaceName, b.Config, live)
			}
			if err != nil {
				return "", nil, err
			}
			return b.WorkspaceName, orEmpty(b.Config), d.tellStrangers(ctx, c, b.Config)
		})
	}))
	e.Handle("sky.workspaces.delete", api.ScheduleShort, verb(func(ctx context.Context, c cluster.Call, b api.WorkspaceBody) (any, error) {
		return d.changeWorkspace(ctx, func(all workspaces.All) (string, map[string]any, error) {
			if _, there := all[b.WorkspaceName]; !there && c.Attempt > 1 {
				return b.WorkspaceName, nil, nil // removed in an earlier life
			}
			live, err := d.livingIn(ctx, b.WorkspaceName)
			if err != nil {
				return "", nil, err
			}
			return b.WorkspaceName, nil, all.Delete(b.WorkspaceName, live)
		})
	}))
	e.Handle("sky.workspaces.batch_add_users", api.ScheduleShort, verb(func(ctx context.Context, _ cluster.Call, b api.WorkspaceUsersBody) (any, error) {
		return d.changeMembers(ctx, b, func(all workspaces.All, name string) (map[string]any, error) { return all.AddUsers(name, b.UserIDs) })
	}))
	e.Handle("sky.workspaces.batch_remove_users", api.ScheduleShort, verb(func(ctx context.Context, _ cluster.Call, b api.WorkspaceUsersBody) (any, error) {
		names, err := d.userNames(ctx, b.UserIDs)
		if err != nil {
			return nil, err
		}
		return d.changeMembers(ctx, b, func(all workspaces.All, name string) (map[string]any, error) {
			return all.RemoveUsers(name, b.UserIDs, names)
		})
	}))
	e.HandleRead("sky.workspaces.get_config", verb(func(context.Context, cluster.Call, api.Envelope) (any, error) {
		return d.settings.asWritten().WithoutSecrets(), nil
	}))
	e.Handle("sky.workspaces.update_config", api.ScheduleShort, verb(func(ctx context.Context, _ cluster.Call, b api.ConfigBody) (any, error) {
		return d.replaceConfig(ctx, b.Config)
	}))
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// changeWorkspace writes what change returns: the settings of one workspace, nil
// to remove it. The result is all workspaces.
func (d *daemon) changeWorkspace(ctx context.Context, change func(workspaces.All) (name string, next map[string]any, err error)) (any, error) {
	err := d.settings.edit(ctx, func(c *config.Config) ([]string, any, error) {
		name, next, err := change(workspaces.Of(c))
		if err != nil || next == nil {
			return []string{"workspaces", name}, nil, err
		}
		return []string{"workspaces", name}, next, nil
	})
	if err != nil {
		return nil, err
	}
	return workspaces.Of(d.settings.asWritten()), nil
}

// changeMembers changes who may use some workspaces, each by itself.
func (d *daemon) changeMembers(ctx context.Context, b api.WorkspaceUsersBody, change func(workspaces.All, string) (map[string]any, error)) (any, error) {
	out := api.WorkspacesChanged{Succeeded: []string{}, Failed: []api.WorkspaceNotChanged{}}
	for _, name := range b.WorkspaceNames {
		_, err := d.changeWorkspace(ctx, func(all workspaces.All) (string, map[string]any, error) {
			next, err := change(all, name)
			if err != nil {
				return "", nil, err
			}
			live, err := d.livingIn(ctx, name)
			if err != nil {
				return "", nil, err
			}
			return name, next, all.Update(name, next, live)
		})
		if err != nil {
			out.Failed = append(out.Failed, api.WorkspaceNotChanged{WorkspaceName: name, Error: err.Error()})
			continue
		}
		out.Succeeded = append(out.Succeeded, name)
	}
	return out, nil
}

// replaceConfig puts a whole configuration in the place of the server's; secrets
// that are not in it stay. Workspaces in it are changed by their own rules.
func (d *daemon) replaceConfig(ctx context.Context, values map[string]any) (any, error) {
	err := d.settings.edit(ctx, func(c *config.Config) ([]string, any, error) {
		next, err := c.Replace(config.Origin{Source: "the new configuration"}, values)
		if err != nil {
			return nil, nil, err
		}
		was, is := workspaces.Of(c), workspaces.Of(next)
		for name := range was {
			live, err := d.livingIn(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			if settings, stays := is[name]; stays {
				err = was.Update(name, settings, live)
			} else {
				err = was.Delete(name, live)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		for name := range is {
			if _, there := was[name]; !there {
				if err := was.Create(name); err != nil {
					return nil, nil, err
				}
			}
		}
		return nil, next.Map(), nil
	})
	if err != nil {
		return nil, err
	}
	return d.settings.asWritten().WithoutSecrets(), nil
}

// livingIn lists what is in a workspace and has not ended.
func (d *daemon) livingIn(ctx context.Context, name string) ([]workspaces.Resource, error) {
	users, err := d.store.Users().List(ctx)
	if err != nil {
		return nil, err
	}
	admin := map[string]bool{d.self.ID: true}
	for _, u := range users {
		admin[u.ID] = admin[u.ID] || u.Role == "admin"
	}
	clusters, err := d.store.Clusters().List(ctx, state.ClusterFilter{Workspace: name})
	if err != nil {
		return nil, err
	}
	var out []workspaces.Resource
	for _, c := range clusters {
		out = append(out, workspaces.Resource{What: "cluster", Name: c.Name, UserID: c.UserHash, UserName: c.UserName, IsAdmin: admin[c.UserHash]})
	}
	volumes, err := d.store.Volumes().List(ctx, state.VolumeFilter{Workspace: name})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if v.ClusterHash == "" {
			out = append(out, workspaces.Resource{What: "volume", Name: v.Name, UserID: v.UserHash, UserName: v.UserName, IsAdmin: admin[v.UserHash]})
		}
	}
	buckets, err := d.store.Buckets().List(ctx, state.BucketFilter{Workspace: name})
	if err != nil {
		return nil, err
	}
	for _, b := range buckets {
		out = append(out, workspaces.Resource{What: "bucket", Name: b.Name, UserID: b.UserHash, UserName: b.UserName, IsAdmin: admin[b.UserHash]})
	}
	page, err := d.store.ManagedJobs().List(ctx, state.ManagedFilter{InWorkspace: name, Live: true})
	if err != nil {
		return nil, err
	}
	for i, r := range page.Rows {
		if i == 0 || page.Rows[i-1].Job.ID != r.Job.ID {
			out = append(out, workspaces.Resource{What: "managed job", Name: strconv.Itoa(r.Job.ID),
				UserID: r.Job.UserHash, UserName: r.Job.UserName, IsAdmin: admin[r.Job.UserHash]})
		}
	}
	return out, nil
}

// userNames are the names of users, who may be listed by them, too.
func (d *daemon) userNames(ctx context.Context, ids []string) ([]string, error) {
	users, err := d.store.Users().List(ctx)
	var names []string
	for _, u := range users {
		if slices.Contains(ids, u.ID) {
			names = append(names, u.Name)
		}
	}
	return names, err
}

// tellStrangers says in the request's log which users of a workspace nobody
// knows yet: they may come, or be mistyped.
func (d *daemon) tellStrangers(ctx context.Context, c cluster.Call, settings map[string]any) error {
	users, err := d.store.Users().List(ctx)
	if err != nil {
		return err
	}
	list, _ := settings["allowed_users"].([]any)
	for _, v := range list {
		name, _ := v.(string)
		if !slices.ContainsFunc(users, func(u state.User) bool { return u.ID == name || u.Name == name }) {
			fmt.Fprintf(c.Out, "Nobody is known here as %q yet; they may use the workspace once they log in.\n", name)
		}
	}
	return nil
}
