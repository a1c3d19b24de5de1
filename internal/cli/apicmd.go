package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/localserver"
)

func (a *app) apiCommand() *cobra.Command {
	return a.build(command{
		name: "api", short: "Start, stop and look at the API server and its requests.",
		example: "sky api info\nsky api status\nsky api logs --server-logs",
		group: []*cobra.Command{
			a.apiStartCommand(), a.apiStopCommand(), a.apiLogsCommand(), a.apiCancelCommand(), a.apiStatusCommand(),
			a.apiLoginCommand(), a.apiLogoutCommand(), a.apiInfoCommand(), a.apiDumpCommand(), a.apiRotateKeyCommand(),
			a.apiBackupCommand(), a.apiRestoreCommand(),
		},
	})
}

func (a *app) apiStartCommand() *cobra.Command {
	o := ServeOptions{Host: "127.0.0.1"}
	var foreground bool
	var idle *int
	return a.build(command{
		name: "start", short: "Start the API server on this machine.", noConfig: true,
		long: "Does nothing when it already runs. Other commands start it when they need it.\n\n" +
			"A server does not start on a database that is missing, damaged, older than it was or of another installation,\n" +
			"and says what can be done: --accept-database and --start-anew are ways out.",
		example: "sky api start\nsky api start --foreground",
		flags: func(f flags) {
			f.on(&o.Deploy, "deploy", "", "Serve a team: listen on all addresses of this machine.")
			f.choice(&o.Host, "host", "", "Address to listen on.", "0.0.0.0", "localhost", "127.0.0.1")
			f.on(&foreground, "foreground", "", "Stay in the foreground; end with Ctrl-C.")
			f.on(&o.EnableBasicAuth, "enable-basic-auth", "", "Ask users for a name and password.")
			f.on(&o.AnyPort, "any-port", "", "In the foreground: listen on another port if that one is in use.")
			f.on(&o.AcceptDatabase, "accept-database", "", "Go on with a database that is older than it was, or of another installation.")
			f.on(&o.StartAnew, "start-anew", "", "Begin a new database in place of one that is lost; its files are kept aside.")
			f.number(&idle, "until-idle", "", "In the foreground: end, with exit code 10, after this many minutes without a request, job, schedule or cluster.")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if idle != nil {
				if *idle < 1 {
					return usagef("--until-idle is a number of minutes, at least 1.")
				}
				o.UntilIdle = time.Duration(*idle) * time.Minute
			}
			if o.AcceptDatabase && o.StartAnew {
				return usagef("Choose one of --accept-database and --start-anew.")
			}
			if (o.AnyPort || idle != nil) && !foreground {
				return usagef("--any-port and --until-idle go with --foreground.")
			}
			return a.apiStart(ctx, o, foreground)
		},
	})
}

func (a *app) apiStart(ctx context.Context, o ServeOptions, foreground bool) error {
	if o.Deploy {
		o.Host = "0.0.0.0"
	}
	c, local, err := a.localOnly()
	if err != nil {
		return err
	}
	if c == nil {
		endpoint, from, _ := a.endpoint()
		return fmt.Errorf("a local API server makes no sense while the endpoint is set to %s (by %s). Unset %s, or remove api_server.endpoint from the configuration, and try again",
			endpoint, from, "SKYPILOT_API_SERVER_ENDPOINT")
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(local.Endpoint, "http://"))
	if err != nil {
		return err
	}
	if o.Port, err = strconv.Atoi(port); err != nil {
		return fmt.Errorf("SKY_API_PORT %q is no port", port)
	}
	if foreground {
		if a.p.Serve == nil {
			return errors.New("this build of sky has no API server")
		}
		if !o.AnyPort {
			if err := local.Free(ctx); err != nil {
				return err
			}
		}
		err := a.p.Serve(ctx, o)
		if errors.Is(err, ErrIdle) {
			a.t.Note("The API server ended: %v.", err)
			return exitError(exitIdle)
		}
		return err
	}
	if o.Deploy {
		local.Command = append(local.Command, "--deploy")
	}
	local.Command = append(local.Command, "--host", o.Host)
	if o.EnableBasicAuth {
		local.Command = append(local.Command, "--enable-basic-auth")
	}
	switch {
	case o.AcceptDatabase:
		local.Command = append(local.Command, "--accept-database")
	case o.StartAnew:
		local.Command = append(local.Command, "--start-anew")
	}
	spin := a.t.Spin("[bold cyan]Starting the API server[/]")
	h, started, err := local.Ensure(ctx)
	spin.Stop()
	if err == nil && !started {
		err = local.Proved(ctx)
	}
	if err != nil {
		return err
	}
	if !started && (o.AcceptDatabase || o.StartAnew) {
		return errors.New("the API server is running already, so its database is in order: leave --accept-database and --start-anew out")
	}
	if !started {
		a.t.Println("API server is already running:")
		a.warnOtherBuild(h)
	}
	a.warnDegraded(h)
	a.t.Printf("├── SkyPilot API server and dashboard: %s\n└── View API server logs at: %s\n", c.Endpoint(), "~/.sky/api_server/server.log")
	return nil
}

// localOnly makes a client of the local server; nil when the endpoint is another.
func (a *app) localOnly() (*sky.Client, *localserver.Local, error) {
	c, err := a.open()
	if err != nil || !c.Local() {
		return nil, nil, err
	}
	l, err := a.local(c)
	return c, l, err
}

func (a *app) apiStopCommand() *cobra.Command {
	return a.build(command{
		name: "stop", short: "Stop the API server on this machine.", noConfig: true,
		example: "sky api stop      # unfinished requests go on with the next server; jobs are not touched",
		long:    "Clusters and their jobs go on. Requests in progress are taken up again at the next start.",
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, local, err := a.localOnly()
			if err != nil {
				return err
			}
			if c == nil {
				endpoint, _, _ := a.endpoint()
				return fmt.Errorf("the API server at %s was not started on this machine, so it cannot be stopped from here", endpoint)
			}
			spin := a.t.Spin("[bold cyan]Stopping the API server[/]")
			stopped, err := local.Stop(ctx)
			spin.Stop()
			if err != nil {
				return err
			}
			if !stopped {
				a.t.Println("SkyPilot API server is not running.")
				return nil
			}
			a.t.Println("SkyPilot API server stopped.")
			return nil
		},
	})
}

// apiInfo is the shape of api info -o json.
type apiInfo struct {
	Client struct {
		Version string `json:"version"`
		Commit  string `json:"commit"`
		BuildID string `json:"build_id"`
	} `json:"client"`
	Server struct {
		URL        string `json:"url"`
		Status     string `json:"status"`
		Version    string `json:"version"`
		Commit     string `json:"commit"`
		APIVersion string `json:"api_version"`
		BuildID    string `json:"build_id,omitempty"`
		InstanceID string `json:"instance_id,omitempty"`
		PID        int    `json:"pid,omitempty"`
		StartedAt  int64  `json:"started_at,omitempty"`
	} `json:"server"`
	User *api.User `json:"user"`
}
