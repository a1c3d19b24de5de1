package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/wholefile"
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
// from starting: it must not have fewer locks than were meant. at is where the server
// listens.
func (d *daemon) access(ctx context.Context, at net.Addr) (a access, err error) {
	o, err := auth.Load(d.o.Home, os.Getenv)
	if err != nil {
		return a, err
	}
	o.DefaultRole = func() string { return d.settings.rules().DefaultRole }
	o.Owner.Self = d.self
	if o.Owner.Token, err = writeOwnerToken(d.o.Home); err != nil {
		return a, err
	}
	if tcp, ok := at.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		o.Owner.Exposed = true
		if !o.Demanded() {
			d.log.WarnContext(ctx, "nobody has to log in, and the server listens beyond this machine: whoever reaches it may do everything", "address", at.String())
		}
	}
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

// writeOwnerToken makes the token of this start's owner known to those who may read
// the server's files.
func writeOwnerToken(home string) (string, error) {
	token := api.OwnerPrefix + rand.Text()
	if err := wholefile.Write(sky.OwnerFile(home), []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the token of the server's owner: %w", err)
	}
	return token, nil
}

// rulesOf is what a configuration says about users.
func rulesOf(c *config.Config) (server.Rules, error) {
	roles, _ := c.Get("rbac", "roles")
	policy, err := auth.ReadPolicy(roles)
	if err != nil {
		return server.Rules{}, err
	}
	// A list of the installation's own would open the configuration otherwise.
	configuration := auth.Rule{Method: http.MethodGet, Path: "/workspaces/config"}
	if blocked, replaced := policy.Blocked["user"]; !c.Bool("rbac", "restrict_config_to_admins") {
		policy.Opened = []auth.Rule{configuration}
	} else if replaced {
		policy.Blocked["user"] = append(blocked, configuration)
	}
	r := server.Rules{Policy: policy, DefaultRole: strings.ToLower(c.Text("rbac", "default_role")), Workspaces: c.Workspaces()}
	if c.ActiveWorkspaceGiven() {
		r.Active = c.ActiveWorkspace()
	}
	r.Links, _ = c.Get("dashboard", "external_links")
	return r, nil
}
