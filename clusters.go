package sky

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// Validate checks a Dag's YAML on the server; a refusal is an [*api.Error].
func (c *Client) Validate(ctx context.Context, b api.DagBody) error {
	b.Envelope = c.envelope()
	_, err := postAgain[any](ctx, c, "/validate", b)
	return err
}

// Optimize plans a Dag; the table of candidates is the request's log.
func (c *Client) Optimize(ctx context.Context, b api.DagBody) (*Request[*api.Plan], error) {
	b.Envelope = c.envelope()
	return post[*api.Plan](ctx, c, "/optimize", b)
}

// Launch makes the cluster b.ClusterName exist and runs the task on it.
func (c *Client) Launch(ctx context.Context, b api.LaunchBody) (*Request[api.LaunchResult], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[api.LaunchResult](ctx, c, "/launch", b)
}

// Exec runs a task on a cluster that is up.
func (c *Client) Exec(ctx context.Context, b api.ExecBody) (*Request[api.LaunchResult], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[api.LaunchResult](ctx, c, "/exec", b)
}

// withBlob is the envelope of a call whose files were uploaded as blob.
func (c *Client) withBlob(blob *string) api.Envelope {
	e := c.envelope()
	e.FileMountsBlobID = blob
	return e
}

// Status lists clusters.
func (c *Client) Status(ctx context.Context, b api.StatusBody) (*Request[[]api.StatusRecord], error) {
	b.Envelope = c.envelope()
	if b.Refresh == "" {
		b.Refresh = api.RefreshNone
	}
	return post[[]api.StatusRecord](ctx, c, "/status", b)
}

// Start restarts a stopped cluster.
func (c *Client) Start(ctx context.Context, b api.StartBody) (*Request[*api.Handle], error) {
	b.Envelope = c.envelope()
	return post[*api.Handle](ctx, c, "/start", b)
}

// Stop stops a cluster's machines and keeps their disks.
func (c *Client) Stop(ctx context.Context, b api.StopBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/stop", b)
}

// Down gives a cluster back for good.
func (c *Client) Down(ctx context.Context, b api.StopBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/down", b)
}

// Autostop sets or, with IdleMinutes < 0, cancels when a cluster gives itself back.
func (c *Client) Autostop(ctx context.Context, b api.AutostopBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/autostop", b)
}

// Check looks at the credentials of all or some clouds. The result lists the
// capabilities by workspace and cloud; the report for people is the request's log.
func (c *Client) Check(ctx context.Context, b api.CheckBody) (*Request[map[string]map[string][]string], error) {
	b.Envelope = c.envelope()
	return post[map[string]map[string][]string](ctx, c, "/check", b)
}

// EnabledClouds lists the infrastructure that passed the last check. With expand,
// contexts and node pools are listed one by one.
func (c *Client) EnabledClouds(ctx context.Context, workspace string, expand bool) (*Request[[]string], error) {
	q := url.Values{"expand": {boolean(expand)}}
	if workspace != "" {
		q.Set("workspace", workspace)
	}
	return get[[]string](ctx, c, "/enabled_clouds", q)
}

// EnabledCloudsOf is [Client.EnabledClouds] of several workspaces at once.
func (c *Client) EnabledCloudsOf(ctx context.Context, workspaces []string, expand bool) (*Request[map[string][]string], error) {
	q := url.Values{"workspaces": {strings.Join(workspaces, ",")}, "expand": {boolean(expand)}}
	return get[map[string][]string](ctx, c, "/enabled_clouds/batch", q)
}

// Endpoints maps ports to where they are reached.
func (c *Client) Endpoints(ctx context.Context, cluster string, port *api.IntOrString) (*Request[map[string]string], error) {
	return post[map[string]string](ctx, c, "/endpoints", api.EndpointsBody{Envelope: c.envelope(), Cluster: cluster, Port: port})
}

// CostReport lists clusters with their cost.
func (c *Client) CostReport(ctx context.Context, b api.CostReportBody) (*Request[[]api.CostRecord], error) {
	b.Envelope = c.envelope()
	return post[[]api.CostRecord](ctx, c, "/cost_report", b)
}

// ClusterEvents lists what happened to a cluster, the oldest first.
func (c *Client) ClusterEvents(ctx context.Context, b api.ClusterEventsBody) (*Request[[]api.ClusterEvent], error) {
	b.Envelope, b.IncludeTimestamps = c.envelope(), true
	return post[[]api.ClusterEvent](ctx, c, "/cluster_events", b)
}

// Queue lists the jobs of a cluster.
func (c *Client) Queue(ctx context.Context, b api.QueueBody) (*Request[[]api.JobRecord], error) {
	b.Envelope = c.envelope()
	return post[[]api.JobRecord](ctx, c, "/queue", b)
}

// JobStatus gives the state of jobs by id; no ids means the latest job. An
// unknown job has no state.
func (c *Client) JobStatus(ctx context.Context, b api.JobStatusBody) (*Request[map[string]*api.JobStatus], error) {
	b.Envelope = c.envelope()
	return post[map[string]*api.JobStatus](ctx, c, "/job_status", b)
}

// Cancel ends jobs on a cluster: those listed, else all of the caller or of
// everybody, else the caller's latest running one.
func (c *Client) Cancel(ctx context.Context, b api.CancelBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/cancel", b)
}

// Logs is the log of a job on a cluster.
func (c *Client) Logs(b api.LogsBody) (*LogStream, error) {
	b.Envelope = c.envelope()
	return c.logStream("/logs", nil, b, b.Tail)
}

// HookLogs is the log of a cluster's hook.
func (c *Client) HookLogs(b api.HookLogsBody) (*LogStream, error) {
	b.Envelope = c.envelope()
	return c.logStream("/hook_logs", nil, b, b.Tail)
}

// ProvisionLogs is the log of how a cluster was set up. It has no request and so
// no exit code.
func (c *Client) ProvisionLogs(b api.ProvisionLogsBody, follow bool, tail int) (*LogStream, error) {
	b.Envelope = c.envelope()
	q := url.Values{"follow": {boolean(follow)}, "tail": {strconv.Itoa(tail)}}
	return c.logStream("/provision_logs", q, b, tail)
}

// DownloadLogs gathers job logs on the server; the result maps job ids to folders
// for [Client.Download].
func (c *Client) DownloadLogs(ctx context.Context, b api.DownloadLogsBody) (*Request[map[string]string], error) {
	b.Envelope = c.envelope()
	return post[map[string]string](ctx, c, "/download_logs", b)
}
