package server

import (
	"fmt"
	"strings"
)

// Access is what becomes of one kind of caller's calls of a route.
type Access string

const (
	Open   Access = "yes"
	Own    Access = "own" // what the call names must be the caller's
	Closed Access = "no"
	Login  Access = "log in"
)

// Access says who may call a route, as the table has it: an installation may
// change that for users and viewers.
func (r Route) Access() (nobody, viewer, user, admin Access) {
	nobody, viewer, user, admin = Login, Closed, Closed, Open
	if r.Role == Anyone {
		return Open, Open, Open, Open
	}
	if r.Role <= Viewer {
		viewer = Open
	}
	if r.Role <= User {
		user = Open
	}
	if r.Name == "api_cancel" || r.Path == "/api/get" {
		viewer = Own
	}
	if r.Name == "api_cancel" || r.ownerOnly() {
		user = Own
	}
	return nobody, viewer, user, admin
}

// ownerOnly reports whether users call the route about their own things only:
// it changes a cluster, or a user or token.
func (r Route) ownerOnly() bool {
	if r.Role != User {
		return false
	}
	switch {
	case strings.HasPrefix(r.Path, "/users/service-account-tokens/"), r.Path == "/users/update", r.Kind == Socket:
		return true
	}
	return r.Body != nil && r.Body.has("cluster_name")
}

// Elsewhere says what becomes of a user's call about a cluster in a workspace
// that the user may not use; calls that name no cluster are as ever.
func (r Route) Elsewhere() Access {
	_, _, user, _ := r.Access()
	if user != Closed && r.Role != Anyone && r.namesCluster() {
		return Closed
	}
	return user
}

func (r Route) namesCluster() bool {
	return r.Kind == Socket || r.Body != nil && (r.Body.has("cluster_name") || r.Body.has("cluster"))
}

// Permissions is the page of the manual about who may do what.
func Permissions() string {
	var b strings.Builder
	b.WriteString(permissionsHead)
	for _, r := range Routes() {
		nobody, viewer, user, admin := r.Access()
		fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s | %s | %s |\n", r.Method, r.Path, nobody, viewer, user, r.Elsewhere(), admin)
	}
	return b.String()
}

const permissionsHead = `# Who may do what

<!-- Written from the route table: go test ./internal/server -run TestPermissionsPage -update -->

Without a login the server is its owner's, who may make every call: the account of the machine that runs it, and root, by a connection from this machine.
Other accounts hear the server's health and nothing else. A server that listens beyond its machine and lets nobody log in is open to whoever reaches it.
Where a login is on it is asked for on the server's own machine, too, and callers have one of three roles; the owner's token is an administrator's.
[Running an API server for a team](administrators.md#whose-server-it-is) has more.

- **Viewers** look. What they list is never refreshed from a provider, holds no keys, and they read the results of their own requests only.
- **Users** also work, with what is their own: they change clusters that they launched, cancel requests that they made, manage tokens that they
  made, and set their own password. Calls about the things of all users at once are not theirs.
- **Admins** do everything, but run nothing on clusters that run as [their owners' Unix accounts](own-machines.md#whose-account): launches, jobs, hooks,
  shells and ports are their owners' alone there.

What users and viewers see, by name or in a list, is limited to the workspaces that they may use: every cluster, managed job and request belongs
to one. A workspace is open to everybody unless its settings say ` + "`private: true`" + `; then to its ` + "`allowed_users`" + ` (ids or names) and to admins.
One that was removed from the configuration keeps its last settings for what is still in it, and takes nothing new.

A service account has a role of its own, which is never above that of whoever made or changed it. New users get the role in
` + "`rbac.default_role`" + ` (admin). ` + "`rbac.roles.user.permissions.blocklist`" + ` replaces the list of what users may not call, and
` + "`rbac.roles.viewer.permissions.allowlist`" + ` adds to what viewers may. With ` + "`rbac.restrict_config_to_admins: false`" + ` users may also read
the server's configuration, without its secrets.

In the table, *own* means: about what belongs to the caller; *log in* means: not before they log in. *Elsewhere* is a user's
call about a cluster in a workspace that the user may not use.

| Call | No login | Viewer | User | Elsewhere | Admin |
|---|---|---|---|---|---|
`
