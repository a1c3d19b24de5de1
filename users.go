package sky

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Users lists the people who use the server.
func (c *Client) Users(ctx context.Context) ([]api.UserRecord, error) {
	return callJSON[[]api.UserRecord](ctx, c, http.MethodGet, "/users", nil, nil)
}

// CreateUser adds a user who logs in with a password.
func (c *Client) CreateUser(ctx context.Context, b api.UserCreateBody) error {
	return c.tell(ctx, "/users/create", b)
}

// UpdateUser changes a user's role or password.
func (c *Client) UpdateUser(ctx context.Context, b api.UserUpdateBody) error {
	return c.tell(ctx, "/users/update", b)
}

// DeleteUser forgets a user, and the service accounts that the user made.
func (c *Client) DeleteUser(ctx context.Context, id string) error {
	return c.tell(ctx, "/users/delete", api.UserDeleteBody{UserID: id})
}

// SetRoles gives several users one role; the answer says who did not get it.
func (c *Client) SetRoles(ctx context.Context, ids []string, role string) (api.UsersUpdated, error) {
	return postAgain[api.UsersUpdated](ctx, c, "/users/batch_update", api.UsersUpdateBody{UserIDs: ids, Role: role})
}

// ImportUsers adds the users of a CSV table with the columns username, password
// and role.
func (c *Client) ImportUsers(ctx context.Context, csv string) (api.UsersImported, error) {
	return callJSON[api.UsersImported](ctx, c, http.MethodPost, "/users/import", nil, api.UsersImportBody{CSVContent: csv})
}

// ExportUsers is a CSV table of all users, with the hashes of their passwords.
func (c *Client) ExportUsers(ctx context.Context) (api.UsersExport, error) {
	return callJSON[api.UsersExport](ctx, c, http.MethodGet, "/users/export", nil, nil)
}

// tell makes a call whose answer says nothing.
func (c *Client) tell(ctx context.Context, path string, body any) error {
	_, err := callJSON[any](ctx, c, http.MethodPost, path, nil, body)
	return err
}

const tokensPath = "/users/service-account-tokens"

// Tokens lists the tokens of service accounts that the caller may manage.
func (c *Client) Tokens(ctx context.Context) ([]api.ServiceToken, error) {
	return callJSON[[]api.ServiceToken](ctx, c, http.MethodGet, tokensPath, nil, nil)
}

// CreateToken makes a service account; the answer is the only one to tell its
// token.
func (c *Client) CreateToken(ctx context.Context, b api.TokenCreateBody) (api.NewToken, error) {
	return callJSON[api.NewToken](ctx, c, http.MethodPost, tokensPath, nil, b)
}

// RotateToken puts a new token in the place of an old one, which is worth nothing
// from then on.
func (c *Client) RotateToken(ctx context.Context, b api.TokenRotateBody) (api.NewToken, error) {
	return callJSON[api.NewToken](ctx, c, http.MethodPost, tokensPath+"/rotate", nil, b)
}

// DeleteToken revokes a token.
func (c *Client) DeleteToken(ctx context.Context, id string) error {
	return c.tell(ctx, tokensPath+"/delete", api.TokenBody{TokenID: id})
}

// TokenRole is the role of a token's service account.
func (c *Client) TokenRole(ctx context.Context, id string) (api.TokenRoles, error) {
	return postAgain[api.TokenRoles](ctx, c, tokensPath+"/get-role", api.TokenBody{TokenID: id})
}

// SetTokenRole changes it; it cannot be above the caller's own.
func (c *Client) SetTokenRole(ctx context.Context, id, role string) error {
	return c.tell(ctx, tokensPath+"/update-role", api.TokenRoleBody{TokenID: id, Role: role})
}

// AuditFilter selects entries of the audit log; zero fields select all.
type AuditFilter struct {
	Since, Until time.Time
	User         string // id or name
	Cluster      string // may be a shell pattern
	Limit        int    // 0: as many as the server tells at once
}

func (f AuditFilter) query() url.Values {
	q := url.Values{}
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	set("user", f.User)
	set("cluster", f.Cluster)
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339))
	}
	if !f.Until.IsZero() {
		q.Set("until", f.Until.UTC().Format(time.RFC3339))
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Audit lists what was changed through the server, the newest first.
func (c *Client) Audit(ctx context.Context, f AuditFilter) ([]api.AuditRecord, error) {
	return callJSON[[]api.AuditRecord](ctx, c, http.MethodGet, "/audit", f.query(), nil)
}

// ExportAudit writes every entry that the filter selects to w, as one JSON object
// a line.
func (c *Client) ExportAudit(ctx context.Context, f AuditFilter, w io.Writer) error {
	q := f.query()
	q.Set("format", "jsonl")
	return c.copyTo(ctx, call{method: http.MethodGet, path: "/audit", query: q}, w)
}
