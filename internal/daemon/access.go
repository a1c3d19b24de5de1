package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/config"
)

// Variables of the server that are about who may reach it.
const (
	// envHosts are names, with commas between, that the server is reached under.
	envHosts = "SKY_API_SERVER_HOSTS"
	// envAuditDays is how many days the audit log is kept; 0 or unset: for ever.
	envAuditDays = "SKY_AUDIT_RETENTION_DAYS"
)

// access is who may reach the server and do what.
type access struct {
	gate        *auth.Gate
	policy      auth.Policy
	defaultRole string
	workspaces  func() []config.Workspace
	auditKept   time.Duration
	hosts       []string
}

// access reads it from the environment and the server's configuration. What
// cannot be read keeps a server that people log in to from starting: it must not
// have fewer locks than were meant.
func (d *daemon) access(ctx context.Context) (a access, err error) {
	o, err := auth.Load(d.o.Home, os.Getenv)
	if err != nil {
		return a, err
	}
	c, err := config.Load(config.Options{Side: config.Server, Home: d.o.Home})
	if err != nil && o.Locks() {
		return a, fmt.Errorf("reading the server's configuration: %w", err)
	}
	if err != nil { // nobody logs in: what it says about users changes nothing
		d.log.WarnContext(ctx, "the server's configuration is not read", "error", err)
		if c, err = config.FromMap(config.Server, config.Origin{}, nil); err != nil {
			return a, err
		}
	}
	roles, _ := c.Get("rbac", "roles")
	if a.policy, err = auth.ReadPolicy(roles); err != nil {
		return a, err
	}
	a.defaultRole = strings.ToLower(cmp.Or(c.Text("rbac", "default_role"), "admin"))
	o.DefaultRole = a.defaultRole
	if a.gate, err = auth.New(ctx, d.store, o); err != nil {
		return a, err
	}
	a.workspaces = c.Workspaces
	for host := range strings.SplitSeq(os.Getenv(envHosts), ",") {
		if host = strings.TrimSpace(host); host != "" {
			a.hosts = append(a.hosts, host)
		}
	}
	if text := os.Getenv(envAuditDays); text != "" {
		days, err := strconv.Atoi(text)
		if err != nil || days < 0 {
			return a, fmt.Errorf("the variable %s is %q, not a number of days", envAuditDays, text)
		}
		a.auditKept = time.Duration(days) * 24 * time.Hour
	}
	return a, nil
}
