package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/serve/balancer"
)

// serveBalancerCommand runs a load balancer of services beside the server.
func (a *app) serveBalancerCommand() *cobra.Command {
	var server, host, stateDir, tokenFile, accessLog, metricsHost string
	var networks []string
	metricsHost = "127.0.0.1"
	var port, drain, delay *int
	return a.build(command{
		name: "balancer", short: "Run a load balancer of services in the foreground.", noConfig: true,
		long: "It gets from the API server what is to be served, and goes on with the last it got while the server is away,\n" +
			"also after a restart. Several may run at once, behind DNS or another balancer. Ctrl-C or SIGTERM ends it once\n" +
			"its requests have ended.",
		example: "sky serve balancer --server https://sky.example.com --token-file token --state-dir /var/lib/sky-balancer --metrics-port 9090",
		flags: func(f flags) {
			f.text(&server, "server", "", "Endpoint of the API server; without it the one that other commands use.")
			f.text(&host, "host", "", "Address to listen on; without it the one of the API server.")
			f.texts(&networks, "network", "", "Network whose replicas it dials itself, such as kubernetes/CONTEXT when it runs in that cluster; it reaches others through the API server.")
			f.text(&tokenFile, "token-file", "", "File with the token of a service account; without it SKYPILOT_SERVICE_ACCOUNT_TOKEN.")
			f.text(&stateDir, "state-dir", "", "Folder for what must outlive a restart (~/.sky/balancer).")
			f.number(&port, "metrics-port", "", "Port for /metrics and /healthz; without it there are none.")
			f.text(&metricsHost, "metrics-host", "", "Address for /metrics and /healthz.")
			f.text(&accessLog, "access-log", "", "File that gets a line of JSON for each request; - is the standard output.")
			f.number(&drain, "drain-seconds", "", "How long requests may go on when it ends (120).")
			f.number(&delay, "delay-seconds", "", "How long connections are still taken when it ends, while /healthz fails already (0).")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			o := balancer.RunOptions{Endpoint: server}
			if o.Endpoint == "" {
				o.Endpoint = sky.DefaultEndpoint(a.env)
			}
			if _, err := sky.ParseEndpoint(o.Endpoint); err != nil {
				return err
			}
			for _, n := range []struct {
				name string
				v    *int
				most int
			}{{"--metrics-port", port, 65535}, {"--drain-seconds", drain, 86400}, {"--delay-seconds", delay, 86400}} {
				if n.v != nil && (*n.v < 0 || *n.v > n.most) {
					return usagef("%s is a number from 0 to %d.", n.name, n.most)
				}
			}
			if port != nil {
				o.Metrics = net.JoinHostPort(metricsHost, strconv.Itoa(*port))
			}
			if drain != nil {
				o.Drain = max(time.Duration(*drain)*time.Second, time.Nanosecond)
			}
			if delay != nil {
				o.Delay = time.Duration(*delay) * time.Second
			}
			o.Host, o.Networks = host, networks
			o.StateDir = expandHome(stateDir, a.home)
			if o.StateDir == "" {
				o.StateDir = filepath.Join(a.home, ".sky", "balancer")
			}
			env := a.env("SKYPILOT_SERVICE_ACCOUNT_TOKEN")
			o.Token = func() string { return env }
			if tokenFile != "" {
				name := expandHome(tokenFile, a.home)
				if _, err := os.ReadFile(name); err != nil {
					return fmt.Errorf("reading the token: %w", err)
				}
				o.Token = func() string { // again each time, since it may be replaced
					text, _ := os.ReadFile(name)
					return strings.TrimSpace(string(text))
				}
			}
			switch accessLog {
			case "":
			case "-":
				o.AccessLog = a.p.Stdout
			default:
				f, err := os.OpenFile(expandHome(accessLog, a.home), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					return fmt.Errorf("opening the access log: %w", err)
				}
				defer f.Close()
				o.AccessLog = f
			}
			o.Logger = slog.New(slog.NewJSONHandler(a.p.Stderr, nil))
			o.HTTP = &http.Client{}
			// Requests leave garbage and little else: collecting it less often is worth
			// more than the memory.
			debug.SetGCPercent(300)
			return balancer.Run(ctx, o)
		},
	})
}
