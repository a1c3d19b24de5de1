package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// statusOptions are the flags of sky status.
type statusOptions struct {
	verbose, refresh, allUsers bool
	ip, endpoints              bool
	endpoint, limit            *int
	jobs, services, pools      bool
}

func (a *app) statusCommand() *cobra.Command {
	o := statusOptions{jobs: true, services: true, pools: true}
	return a.oldFlags(a.build(command{
		name: "status", args: "[CLUSTERS]...", short: "Show clusters, managed jobs, pools and services.", max: -1,
		long: "CLUSTERS are names or patterns such as 'train-*'. The states are the last ones known;\n" +
			"-r asks the infrastructure.",
		example:  "sky status\nsky status -r 'train-*'\nsky status --ip dev\nsky status --endpoint 8080 dev\nsky status -u --limit 20\nsky status -o json",
		complete: a.completer(sky.CompleteClusters),
		flags: func(f flags) {
			f.on(&o.verbose, "verbose", "v", "Show everything about each cluster.")
			f.on(&o.refresh, "refresh", "r", "Ask the infrastructure for the current state.")
			f.on(&o.ip, "ip", "", "Print the address of the head node of one cluster.")
			f.on(&o.endpoints, "endpoints", "", "Print all open ports of one cluster and their URLs.")
			f.number(&o.endpoint, "endpoint", "", "Print the URL of one open port of one cluster.")
			f.switchable(&o.jobs, "show-managed-jobs", "", "Show managed jobs too. [default: yes]")
			f.switchable(&o.services, "show-services", "", "Show services too. [default: yes]")
			f.switchable(&o.pools, "show-pools", "", "Show pools too. [default: yes]")
			f.on(&o.allUsers, "all-users", "u", "Show the clusters of all users.")
			f.number(&o.limit, "limit", "", "Show at most so many clusters, the newest launched.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error { return a.status(ctx, names, o) },
	}), oldFlag{name: "all", short: "a", today: "verbose"}, oldFlag{name: "show-spot-jobs", today: "show-managed-jobs"})
}

func (o statusOptions) check(names []string) error {
	switch {
	case o.limit != nil && *o.limit < 1:
		return usagef("Invalid value for '--limit': %d is not at least 1.", *o.limit)
	case o.limit != nil && (len(names) > 0 || o.ip || o.endpoints || o.endpoint != nil):
		return usagef("--limit shows the newest of all clusters: it does not go with CLUSTERS, --ip or --endpoint(s).")
	case o.ip && (o.endpoints || o.endpoint != nil):
		return usagef("--ip and --endpoint(s) cannot be used together.")
	case o.endpoints && o.endpoint != nil:
		return usagef("--endpoint and --endpoints cannot be used together.")
	case o.refresh && (o.ip || o.endpoints || o.endpoint != nil):
		return usagef("--ip and --endpoint(s) do not work with --refresh. Refresh first, then ask for the address.")
	}
	return nil
}

// overview is all that sky status shows.
type overview struct {
	clusters   []api.StatusRecord
	similar    []string // clusters probably meant by names that were not found
	infra      []string
	workspaces int
	workspace  string
	jobs       section[api.JobsQueueResult]
	pools      section[[]sky.Service]
	services   section[[]sky.Service]
	machines   []api.SSHPoolStatus // pools of machines of one's own
}

// section is a part of the overview that may be left out or fail by itself.
type section[T any] struct {
	shown bool
	value T
	err   error
}

func (a *app) status(ctx context.Context, names []string, o statusOptions) error {
	if err := o.check(names); err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if o.ip || o.endpoints || o.endpoint != nil {
		return a.statusAddress(ctx, c, names, o)
	}
	v, err := a.gather(ctx, c, names, o)
	if err != nil {
		return err
	}
	a.updateSSH(v.clusters, names == nil && o.allUsers && o.limit == nil)
	for i := range v.clusters {
		v.clusters[i].Handle, v.clusters[i].Credentials = handleFor(a.output, v.clusters[i].Handle), nil
	}
	if done, err := a.emit(nonNil(v.clusters)); done {
		return err
	}
	a.t.Print(v.render(a.t, names, o, a.now()))
	return nil
}

// handleFor keeps the handle for tables only.
func handleFor(output string, h *api.Handle) *api.Handle {
	if output == "table" {
		return h
	}
	return nil
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// gather makes all calls of the overview at once.
func (a *app) gather(ctx context.Context, c *sky.Client, names []string, o statusOptions) (*overview, error) {
	v := &overview{}
	extra := len(names) == 0 && a.output == "table"
	v.jobs.shown, v.pools.shown, v.services.shown = extra && o.jobs, extra && o.pools, extra && o.services
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var err error
		if v.clusters, err = a.askClusters(ctx, c, api.StatusBody{ClusterNames: names, Refresh: refreshMode(o.refresh), AllUsers: &o.allUsers, Limit: o.limit}); err == nil {
			v.similar = a.similarClusters(ctx, c, notFound(names, v.clusters))
		}
		return err
	})
	if extra {
		g.Go(func() error {
			req, err := c.EnabledClouds(ctx, "", true)
			v.infra, err = quiet(ctx, req, err)
			if err == nil && slices.ContainsFunc(v.infra, onSSH) {
				v.machines = a.ownMachines(ctx, c)
			}
			return err
		})
	}
	if a.output == "table" {
		g.Go(func() error {
			req, err := c.Workspaces(ctx)
			all, err := quiet(ctx, req, err)
			v.workspaces = len(all)
			return ignoreRefusal(err)
		})
		g.Go(func() error {
			s, err := a.config()
			if err != nil {
				return err
			}
			mine, err := c.MyWorkspace(ctx, s.workspace)
			if mine.Workspace != nil {
				v.workspace = *mine.Workspace
			}
			return ignoreRefusal(err)
		})
	}
	if v.jobs.shown {
		g.Go(func() error {
			limit := 5
			req, err := c.JobsQueue(ctx, api.JobsQueueBody{SkipFinished: true, AllUsers: o.allUsers, Limit: &limit})
			v.jobs.value, v.jobs.err = quiet(ctx, req, err)
			return ctx.Err()
		})
	}
	if v.pools.shown {
		g.Go(func() error {
			req, err := c.PoolStatus(ctx, nil)
			v.pools.value, v.pools.err = quiet(ctx, req, err)
			return ctx.Err()
		})
	}
	if v.services.shown {
		g.Go(func() error {
			req, err := c.ServeStatus(ctx, nil)
			v.services.value, v.services.err = quiet(ctx, req, err)
			return ctx.Err()
		})
	}
	return v, g.Wait()
}

// ignoreRefusal drops the answers of servers that do not know a call, or do not
// tell anonymous users.
func ignoreRefusal(err error) error {
	if _, ok := errors.AsType[*sky.StatusError](err); ok {
		return nil
	}
	if _, ok := errors.AsType[*sky.AuthError](err); ok {
		return nil
	}
	return err
}

// listClusters asks for clusters by name or pattern; no names means all.
func (a *app) listClusters(ctx context.Context, c *sky.Client, names []string, refresh, allUsers bool) ([]api.StatusRecord, error) {
	return a.askClusters(ctx, c, api.StatusBody{ClusterNames: names, Refresh: refreshMode(refresh), AllUsers: &allUsers})
}

func refreshMode(refresh bool) api.RefreshMode {
	if refresh {
		return api.RefreshForce
	}
	return api.RefreshNone
}

// askClusters is the answer to a status call; one that refreshes says how far it is.
func (a *app) askClusters(ctx context.Context, c *sky.Client, b api.StatusBody) ([]api.StatusRecord, error) {
	req, err := c.Status(ctx, b)
	if b.Refresh == api.RefreshForce {
		return wait(ctx, a, req, err)
	}
	return quiet(ctx, req, err)
}

// notFound lists the names and patterns that match no record.
func notFound(names []string, records []api.StatusRecord) []string {
	var missing []string
	for _, n := range names {
		if !slices.ContainsFunc(records, func(r api.StatusRecord) bool { return matches(n, r.Name) }) {
			missing = append(missing, n)
		}
	}
	return missing
}

// matches reports whether a name fits a pattern with * ? [..].
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok || pattern == name
}

func isPattern(s string) bool { return strings.ContainsAny(s, "*?[") }

// statusAddress prints the address of one cluster.
func (a *app) statusAddress(ctx context.Context, c *sky.Client, names []string, o statusOptions) error {
	what, flag := "IP address", "--ip"
	switch {
	case o.endpoint != nil:
		what, flag = "endpoint", "--endpoint port"
	case o.endpoints:
		what, flag = "endpoint(s)", "--endpoints"
	}
	hint := fmt.Sprintf("\nUsage: `sky status %s <cluster>`", flag)
	if len(names) == 0 {
		return usagef("No cluster specified. Please specify an existing cluster to show its %s.%s", what, hint)
	}
	records, err := a.listClusters(ctx, c, names, false, o.allUsers)
	if err != nil {
		return err
	}
	switch {
	case len(records) > 1 || len(names) > 1:
		return usagef("%s specified. Please specify a single cluster to show its %s.%s", format.Count(max(len(names), len(records)), "cluster"), what, hint)
	case len(records) == 0:
		return usagef("'%s' cluster not found.%s Please specify an existing cluster to show its %s.%s", names[0], didYouMean(a.similarClusters(ctx, c, names)), what, hint)
	}
	r := records[0]
	if r.Status != api.ClusterUp && r.Status != api.ClusterAutostopping {
		return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Cluster '%s' is not in UP status.", r.Name), Hint: "Restart it with: sky start " + r.Name}
	}
	if o.ip {
		ip := headIP(r)
		if ip == "-" {
			return fmt.Errorf("the address of cluster '%s' is not known yet; refresh with: sky status -r %s", r.Name, r.Name)
		}
		a.t.Println(ip)
		return nil
	}
	var port *api.IntOrString
	if o.endpoint != nil {
		n := api.Number(*o.endpoint)
		port = &n
	}
	req, err := c.Endpoints(ctx, r.Name, port)
	urls, err := quiet(ctx, req, err)
	if err != nil {
		return err
	}
	if o.endpoint != nil {
		url, ok := urls[fmt.Sprint(*o.endpoint)]
		if !ok {
			return fmt.Errorf("port %d of cluster '%s' is not open; add it to `ports` of its resources", *o.endpoint, r.Name)
		}
		a.t.Println(url)
		return nil
	}
	if len(urls) == 0 {
		a.t.Note("Cluster '%s' has no open ports.", r.Name)
	}
	for _, p := range sortedNumbers(urls) {
		a.t.Println(a.t.Style(term.Blue, p) + ": " + urls[p])
	}
	return nil
}

// headIP is where the first node is reached from outside.
func headIP(r api.StatusRecord) string {
	if r.Handle != nil && len(r.Handle.StableIPs) > 0 && r.Handle.StableIPs[0][1] != "" {
		return r.Handle.StableIPs[0][1]
	}
	return "-"
}

func sortedNumbers[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return keys
}
