package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) apiLogsCommand() *cobra.Command {
	var server bool
	var path string
	var tail *int
	follow := true
	return a.build(command{
		name: "logs", args: "[REQUEST_ID]", needs: "REQUEST_ID, --log-path or --server-logs", short: "Show the log of a request.", max: 1,
		long:     "REQUEST_ID may be the beginning of an id.",
		example:  "sky api logs 1a2b3c4d\nsky api logs --server-logs --tail 100 --no-follow",
		complete: a.completer(sky.CompleteRequests),
		flags: func(f flags) {
			f.on(&server, "server-logs", "", "Show the log of the API server itself.")
			f.text(&path, "log-path", "l", "Show a log file of the server, below ~/sky_logs.")
			f.number(&tail, "tail", "", "Begin with this many last lines.")
			f.switchable(&follow, "follow", "", "Go on until the request ends. [default: yes]")
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			if server {
				path = "~/.sky/api_server/server.log"
			}
			switch {
			case len(args) == 0 && path == "":
				return usagef("Please provide the request ID or log path.")
			case len(args) > 0 && path != "":
				return usagef("Only one of request ID and log path can be provided.")
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			log := a.t.Log()
			defer log.Close()
			o := sky.StreamOptions{Follow: follow, Tail: tailOrAll(tail), Control: log.Control}
			if path != "" {
				err = c.StreamServerLog(ctx, path, log, o)
			} else {
				err = c.StreamRequest(ctx, args[0], log, o)
			}
			if err != nil && ctx.Err() != nil {
				return exitError(1)
			}
			return err
		},
	})
}

func (a *app) apiCancelCommand() *cobra.Command {
	var all, allUsers, yes bool
	return a.build(command{
		name: "cancel", args: "[REQUEST_IDS]...", needs: "REQUEST_IDS, --all or --all-users", short: "Cancel requests in progress.", max: -1,
		long:     "REQUEST_IDS may be beginnings of ids.",
		example:  "sky api cancel 1a2b3c4d\nsky api cancel -a",
		complete: a.completer(sky.CompleteRequests),
		flags: func(f flags) {
			f.on(&all, "all", "a", "All your requests.")
			f.on(&allUsers, "all-users", "u", "The requests of all users.")
			f.yes(&yes)
		},
		run: func(ctx context.Context, _ *cobra.Command, ids []string) error {
			if len(ids) == 0 && !all && !allUsers {
				return usagef("Name the requests to cancel (see `sky api status`), or pass -a/--all or -u/--all-users.")
			}
			return a.apiCancel(ctx, ids, all, allUsers, yes)
		},
	})
}

func (a *app) apiCancel(ctx context.Context, ids []string, all, allUsers, yes bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	body := api.APICancelBody{RequestIDs: ids}
	if all || allUsers {
		body.RequestIDs = nil
		whose := "ALL USERS'"
		if !allUsers {
			whose = "YOUR"
			id := c.User().ID
			if a.health.User != nil {
				id = a.health.User.ID
			}
			body.UserID = &id
		}
		if !yes {
			a.t.Println(a.t.Style(term.Yellow, "This will cancel all "+whose+" requests."))
			if err := a.t.Type(ctx, "To proceed, please type 'cancel all requests'", "cancel all requests"); err != nil {
				return err
			}
		}
	}
	req, err := c.CancelRequests(ctx, body)
	done, err := quiet(ctx, req, err)
	if err != nil {
		return err
	}
	for _, id := range body.RequestIDs {
		if !slices.ContainsFunc(done, func(d string) bool { return strings.HasPrefix(d, id) }) {
			a.t.Printf("Request %s is not under way (see: sky api status -a).\n", id)
		}
	}
	switch len(done) {
	case 0:
		a.t.Println("No requests need to be cancelled.")
	case 1:
		a.t.Println("Cancelled 1 request: " + done[0])
	default:
		a.t.Printf("Cancelled %d requests.\n", len(done))
	}
	return nil
}

func (a *app) apiStatusCommand() *cobra.Command {
	var all, verbose, room bool
	var cluster string
	limit := "50"
	return a.build(command{
		name: "status", args: "[ID_PREFIXES]...", short: "List requests.", max: -1,
		example:  "sky api status\nsky api status -a -l none\nsky api status -o json\nsky api status --sizes -o json",
		long:     "Shows requests in progress; with -a or ID_PREFIXES, finished ones too.",
		complete: a.completer(sky.CompleteRequests),
		flags: func(f flags) {
			f.on(&all, "all-status", "a", "Finished requests too.")
			f.text(&limit, "limit", "l", "Show at most this many; none or all for no limit.")
			f.note("limit", noteMeta, "INTEGER|none|all")
			f.text(&cluster, "cluster", "c", "Only requests about this cluster.")
			f.on(&verbose, "verbose", "v", "Show the cluster too.")
			f.on(&room, "sizes", "", "How much room the server's files take, in place of requests.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, ids []string) error {
			n, err := requestLimit(limit)
			if err != nil {
				return err
			}
			c, err := a.open()
			if err != nil {
				return err
			}
			if room {
				sizes, err := c.Sizes(ctx)
				if err != nil {
					return a.explainRemote(err)
				}
				if done, err := a.emit(sizes); done {
					return err
				}
				a.t.Print(sizesText(sizes))
				return nil
			}
			var list []api.RequestPayload
			if c.Local() {
				_, err = c.HealthIfListening(ctx)
			}
			if sky.Refused(err) {
				a.t.Note("No API server runs on this machine, so there are no requests.") // none is started only to say that
			} else if list, err = c.Requests(ctx, sky.RequestFilter{IDs: ids, All: all, Limit: n, Cluster: cluster}); err != nil {
				return a.explainRemote(err)
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			a.t.Print(a.t.Table(requestTable(a.t, list, verbose, a.now())))
			if n > 0 && len(list) >= n {
				a.t.Printf("\nShowing %d requests. Use \"-l none\" or \"-l all\" to show all requests.\n", n)
			}
			if err == nil {
				if sizes, err := c.Sizes(ctx); err == nil { // an older server does not tell
					a.t.Print("\n" + sizesText(sizes))
				}
			}
			return nil
		},
	})
}

// sizesText says how much room the server's files take.
func sizesText(s api.Sizes) string {
	log := ""
	if s.WAL > 0 {
		log = " (and its log " + format.Bytes(s.WAL) + ")"
	}
	return fmt.Sprintf("On the server: database %s%s, uploads %s, logs %s, the server's own log %s.\n",
		format.Bytes(s.Database), log, format.Bytes(s.Uploads), format.Bytes(s.Logs), format.Bytes(s.ServerLog))
}

// requestLimit reads the value of --limit; 0 means no limit.
func requestLimit(s string) (int, error) {
	switch strings.ToLower(s) {
	case "none", "all":
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, usagef("Invalid value for '-l' / '--limit': '%s' is not a valid integer or \"none\" or \"all\".", s)
	}
	return n, nil
}

const requestIDWidth = 36

// requestTable lists requests; without any it has a row of dashes.
func requestTable(t *term.Term, list []api.RequestPayload, verbose bool, now time.Time) *table.Table {
	tab := table.New("ID", "User", "Name", "Created", "Status").Whole("ID", "Status").Prose("Cluster").Optional("User", "Created", "Cluster")
	if verbose {
		tab.Header = []string{"ID", "User", "Name", "Cluster", "Created", "Status"}
	}
	for _, r := range list {
		user := r.UserID
		if r.UserName != nil && *r.UserName != "" {
			user = *r.UserName
		}
		row := []string{format.Truncate(r.RequestID, requestIDWidth), format.OrDash(user), r.Name}
		if verbose {
			cluster := ""
			if r.ClusterName != nil {
				cluster = *r.ClusterName
			}
			row = append(row, format.OrDash(cluster))
		}
		tab.Add(append(row, format.Ago(r.CreatedAt, now), requestStatusCell(t, r.Status))...)
	}
	if len(list) == 0 {
		row := make([]string, len(tab.Header))
		for i := range row {
			row[i] = "-"
		}
		tab.Add(row...)
	}
	return tab
}

func requestStatusCell(t *term.Term, s api.RequestStatus) string {
	switch s {
	case api.RequestSucceeded:
		return t.Style(term.Green, string(s))
	case api.RequestFailed:
		return t.Style(term.Red, string(s))
	case api.RequestCancelled:
		return t.Style(term.Yellow, string(s))
	}
	return t.Style(term.Blue, string(s))
}

func (a *app) apiInfoCommand() *cobra.Command {
	return a.build(command{
		name: "info", short: "Show the client, the API server and who you are.",
		example: "sky api info\nsky api info -o json",
		flags:   func(f flags) { f.out(a) },
		run:     func(ctx context.Context, _ *cobra.Command, _ []string) error { return a.apiInfo(ctx) },
	})
}

func (a *app) apiInfo(ctx context.Context) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	info := apiInfo{User: new(c.User())}
	info.Client.Version, info.Client.Commit, info.Client.BuildID = api.ProductVersion, api.Commit(), clientBuild()
	info.Server.URL = c.Endpoint()
	h, err := c.HealthIfListening(ctx)
	switch {
	case err == nil:
		s := &info.Server
		s.Status, s.Version, s.Commit, s.APIVersion = h.Status, h.Version, h.Commit, h.APIVersion
		s.BuildID, s.InstanceID, s.PID, s.StartedAt = h.BuildID, h.InstanceID, h.PID, h.StartedAt
		if h.User != nil {
			info.User = h.User
		}
	case ctx.Err() != nil:
		return err
	default:
		info.Server.Status = "unreachable"
	}
	if done, err := a.emit(info); done {
		return err
	}
	a.t.Printf("SkyPilot client version: %s, commit: %s\n", api.ProductVersion, api.Commit())
	if err != nil {
		if c.Local() {
			a.t.Println("No SkyPilot API server is connected")
			a.t.Println("├── To start one on this machine: sky api start\n└── To use one elsewhere:          sky api login -e URL")
		} else {
			a.t.Printf("Could not connect to SkyPilot API server at %s\n", c.Endpoint())
			a.t.Printf("├── Reason: %v\n└── To use another one: sky api login -e URL\n", err)
		}
		return nil
	}
	a.t.Printf("Using SkyPilot API server and dashboard: %s\n", c.Endpoint())
	pid := ""
	if h.PID > 0 && c.Local() {
		pid = fmt.Sprintf(", pid: %d", h.PID)
	}
	build := ""
	if h.BuildID != "" {
		build = ", build: " + h.BuildID
	}
	a.t.Printf("├── Status: %s, commit: %s, version: %s%s%s\n", h.Status, h.Commit, h.Version, build, pid)
	a.t.Printf("├── User: %s (%s)\n", info.User.Name, info.User.ID)
	a.t.Println("└── " + a.endpointOrigin())
	return nil
}

// endpointOrigin says where the endpoint comes from.
func (a *app) endpointOrigin() string {
	s, err := a.config()
	switch {
	case err != nil || s.endpoint == "":
		return "Endpoint set to default local API server."
	case s.endpointFrom == "SKYPILOT_API_SERVER_ENDPOINT":
		return "Endpoint set via the environment variable SKYPILOT_API_SERVER_ENDPOINT"
	}
	return "Endpoint set via " + s.endpointFrom
}
