package daemon

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/server"
)

// Variables of the server that are about who may reach it.
const (
	// envHosts are names, with commas between, that the server is reached under.
	envHosts = "SKY_API_SERVER_HOSTS"
	// envAuditDays is how many days the audit log is kept; 0 or unset: for ever.
	envAuditDays = "SKY_AUDIT_RETENTION_DAYS"
)

// access is who may reach the server.
type access struct {
	gate      *auth.Gate
	auditKept time.Duration
	hosts     []string
}

// access reads it from the environment. What cannot be read keeps the server
// from starting: it must not have fewer locks than were meant.
func (d *daemon) access(ctx context.Context) (a access, err error) {
	o, err := auth.Load(d.o.Home, os.Getenv)
	if err != nil {
		return a, err
	}
	o.DefaultRole = func() string { return d.settings.rules().DefaultRole }
	if a.gate, err = auth.New(ctx, d.store, o); err != nil {
		return a, err
	}
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

// rulesOf is what a configuration says about users.
func rulesOf(c *config.Config) (server.Rules, error) {
	roles, _ := c.Get("rbac", "roles")
	policy, err := auth.ReadPolicy(roles)
	if err != nil {
		return server.Rules{}, err
	}
	r := server.Rules{Policy: policy, DefaultRole: strings.ToLower(c.Text("rbac", "default_role")), Workspaces: c.Workspaces()}
	if c.ActiveWorkspaceGiven() {
		r.Active = c.ActiveWorkspace()
	}
	return r, nil
}
