package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// LaunchJob submits a managed job.
func (c *Client) LaunchJob(ctx context.Context, b api.JobsLaunchBody) (*Request[api.JobsLaunchResult], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[api.JobsLaunchResult](ctx, c, "/jobs/launch", b)
}

// JobsQueue lists managed jobs, latest first.
func (c *Client) JobsQueue(ctx context.Context, b api.JobsQueueBody) (*Request[api.JobsQueueResult], error) {
	b.Envelope = c.envelope()
	return post[api.JobsQueueResult](ctx, c, "/jobs/queue/v2", b)
}

// CancelJobs ends managed jobs; the log says which.
func (c *Client) CancelJobs(ctx context.Context, b api.JobsCancelBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/jobs/cancel", b)
}

// JobSchedules lists schedules of managed jobs.
func (c *Client) JobSchedules(ctx context.Context, b api.JobsSchedulesBody) (*Request[[]api.JobsSchedule], error) {
	b.Envelope = c.envelope()
	return post[[]api.JobsSchedule](ctx, c, "/jobs/schedules", b)
}

// EndJobSchedules ends schedules of managed jobs; the log says which.
func (c *Client) EndJobSchedules(ctx context.Context, b api.JobsEndSchedulesBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/jobs/end_schedules", b)
}

// JobLogs is the log of a managed job.
func (c *Client) JobLogs(b api.JobsLogsBody) (*LogStream, error) {
	b.Envelope = c.envelope()
	return c.logStream("/jobs/logs", nil, b, deref(b.Tail))
}

// WaitJob waits for a managed job to end; the result is the exit code of its state
// (see api.ManagedStatus.ExitCode).
func (c *Client) WaitJob(ctx context.Context, b api.JobsWaitBody) (*Request[int], error) {
	b.Envelope = c.envelope()
	return post[int](ctx, c, "/jobs/wait", b)
}

// JobEvents lists what happened to a managed job, the newest first.
func (c *Client) JobEvents(ctx context.Context, b api.JobsEventsBody) (*Request[[]api.JobsEvent], error) {
	b.Envelope = c.envelope()
	return post[[]api.JobsEvent](ctx, c, "/jobs/events", b)
}

// DownloadJobLogs gathers a managed job's logs for [Client.Download].
func (c *Client) DownloadJobLogs(ctx context.Context, b api.JobsDownloadLogsBody) (*Request[map[string]string], error) {
	b.Envelope = c.envelope()
	return post[map[string]string](ctx, c, "/jobs/download_logs", b)
}

// ApplyPool makes or changes a pool; there is no result.
func (c *Client) ApplyPool(ctx context.Context, b api.PoolApplyBody) (*Request[any], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[any](ctx, c, "/jobs/pool_apply", b)
}

// DownPools ends pools; there is no result.
func (c *Client) DownPools(ctx context.Context, b api.PoolDownBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/jobs/pool_down", b)
}

// PoolStatus lists pools.
func (c *Client) PoolStatus(ctx context.Context, names []string) (*Request[[]Service], error) {
	return post[[]Service](ctx, c, "/jobs/pool_status", api.PoolStatusBody{Envelope: c.envelope(), PoolNames: names})
}

// PoolLogs is the log of a pool's controller or of a worker.
func (c *Client) PoolLogs(b api.PoolLogsBody) (*LogStream, error) {
	b.Envelope = c.envelope()
	return c.logStream("/jobs/pool_logs", nil, b, deref(b.Tail))
}

// SyncPoolLogs gathers a pool's logs for [Client.Download].
func (c *Client) SyncPoolLogs(ctx context.Context, b api.PoolSyncLogsBody) (*Request[string], error) {
	b.Envelope = c.envelope()
	return post[string](ctx, c, "/jobs/pool_sync-down-logs", b)
}
