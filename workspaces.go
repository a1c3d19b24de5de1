package sky

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"

	"github.com/skypilot-go/sky/api"
)

// Workspaces lists the workspaces that the caller may use, with their settings.
func (c *Client) Workspaces(ctx context.Context) (*Request[map[string]map[string]any], error) {
	return get[map[string]map[string]any](ctx, c, "/workspaces", nil)
}

// Workspace settings are keys of the configuration's section workspaces.NAME:
// private, allowed_users, and what differs for the clouds.

// CreateWorkspace makes a workspace; the result is all of them.
func (c *Client) CreateWorkspace(ctx context.Context, name string, settings map[string]any) (*Request[map[string]map[string]any], error) {
	return c.changeWorkspace(ctx, "create", name, settings)
}

// UpdateWorkspace replaces the settings of a workspace.
func (c *Client) UpdateWorkspace(ctx context.Context, name string, settings map[string]any) (*Request[map[string]map[string]any], error) {
	return c.changeWorkspace(ctx, "update", name, settings)
}

// DeleteWorkspace removes a workspace that nothing lives in.
func (c *Client) DeleteWorkspace(ctx context.Context, name string) (*Request[map[string]map[string]any], error) {
	return c.changeWorkspace(ctx, "delete", name, nil)
}

func (c *Client) changeWorkspace(ctx context.Context, verb, name string, settings map[string]any) (*Request[map[string]map[string]any], error) {
	if settings == nil {
		settings = map[string]any{}
	}
	return post[map[string]map[string]any](ctx, c, "/workspaces/"+verb, api.WorkspaceBody{Envelope: c.envelope(), WorkspaceName: name, Config: settings})
}

// AddWorkspaceUsers lets users, by id, into private workspaces.
func (c *Client) AddWorkspaceUsers(ctx context.Context, workspaces, users []string) (*Request[api.WorkspacesChanged], error) {
	return post[api.WorkspacesChanged](ctx, c, "/workspaces/batch_add_users",
		api.WorkspaceUsersBody{Envelope: c.envelope(), WorkspaceNames: workspaces, UserIDs: users})
}

// RemoveWorkspaceUsers takes users, by id, out of private workspaces.
func (c *Client) RemoveWorkspaceUsers(ctx context.Context, workspaces, users []string) (*Request[api.WorkspacesChanged], error) {
	return post[api.WorkspacesChanged](ctx, c, "/workspaces/batch_remove_users",
		api.WorkspaceUsersBody{Envelope: c.envelope(), WorkspaceNames: workspaces, UserIDs: users})
}

// ServerConfig is the server's configuration, less its secrets.
func (c *Client) ServerConfig(ctx context.Context) (*Request[map[string]any], error) {
	return get[map[string]any](ctx, c, "/workspaces/config", nil)
}

// UpdateServerConfig replaces the server's configuration; secrets that values
// does not hold stay.
func (c *Client) UpdateServerConfig(ctx context.Context, values map[string]any) (*Request[map[string]any], error) {
	return post[map[string]any](ctx, c, "/workspaces/config", api.ConfigBody{Envelope: c.envelope(), Config: values})
}

// MyWorkspace is the caller's workspace; requested is what the configuration
// asks for.
func (c *Client) MyWorkspace(ctx context.Context, requested string) (api.WorkspaceChoice, error) {
	q := url.Values{}
	if requested != "" {
		q.Set("requested", requested)
	}
	return callJSON[api.WorkspaceChoice](ctx, c, http.MethodGet, "/users/me/workspace", q, nil)
}

// PreferWorkspace sets, or with nil clears, the caller's preferred workspace.
func (c *Client) PreferWorkspace(ctx context.Context, name *string) error {
	_, err := postAgain[any](ctx, c, "/users/me/workspace", api.UserWorkspaceBody{Preferred: name})
	return err
}

// Role is the caller's role on the server.
func (c *Client) Role(ctx context.Context) (role string, who api.User, err error) {
	r, err := callJSON[struct {
		ID, Name, Role string
	}](ctx, c, http.MethodGet, "/users/role", nil, nil)
	return r.Role, api.User{ID: r.ID, Name: r.Name}, err
}

// DebugDump gathers diagnostic files on the server; the result is the archive's
// path there.
func (c *Client) DebugDump(ctx context.Context, b api.DebugDumpBody) (*Request[string], error) {
	b.Envelope = c.envelope()
	return post[string](ctx, c, "/debug/dump_create", b)
}

// DownloadDump copies an archive that DebugDump made to w.
func (c *Client) DownloadDump(ctx context.Context, remote string, w io.Writer) error {
	return c.copyTo(ctx, call{method: http.MethodGet, path: "/debug/dump_download/" + url.PathEscape(path.Base(remote))}, w)
}

// Backup writes a backup of the server's state to w, as it is at one moment: a tar
// archive packed with gzip, which "sky api restore" reads. It is for administrators.
// A backup that was cut off is an error, and is known by its lack of sums.
func (c *Client) Backup(ctx context.Context, b api.BackupBody, w io.Writer) error {
	b.Envelope = c.envelope()
	raw, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return c.copyTo(ctx, call{method: http.MethodPost, path: "/backup", body: raw, idempotent: true}, w)
}

// Dump writes what a bug report needs to know about the server to w, as a tar
// archive packed with gzip, without secrets. Nothing selected is everything.
func (c *Client) Dump(ctx context.Context, b api.DebugDumpBody, w io.Writer) error {
	b.Envelope = c.envelope()
	raw, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return c.copyTo(ctx, call{method: http.MethodPost, path: "/debug/dump", body: raw, idempotent: true}, w)
}
