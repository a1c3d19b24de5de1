package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// JobsLaunchResult names the new jobs: an id, or a list of them.
type JobsLaunchResult struct {
	JobID      IntList `json:"job_id"`
	ScheduleID int     `json:"schedule_id"` // a schedule was kept instead; 0: none
}

// LaunchJob submits a managed job.
func (c *Client) LaunchJob(ctx context.Context, b api.JobsLaunchBody) (*Request[JobsLaunchResult], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[JobsLaunchResult](ctx, c, "/jobs/launch", b)
}

// JobsPage is a part of the list of managed jobs.
type JobsPage struct {
	Jobs          []ManagedJob   `json:"jobs"`
	Total         int            `json:"total"`
	TotalNoFilter int            `json:"total_no_filter"`
	StatusCounts  map[string]int `json:"status_counts"`
}

// ManagedJob is one task of a managed job.
type ManagedJob struct {
	JobID            *int     `json:"job_id"`
	TaskID           *int     `json:"task_id"`
	JobName          string   `json:"job_name"`
	TaskName         string   `json:"task_name"`
	JobDuration      *float64 `json:"job_duration"` // seconds
	Workspace        string   `json:"workspace"`
	Status           string   `json:"status"`
	ScheduleState    string   `json:"schedule_state,omitempty"`
	Resources        string   `json:"resources"`
	ClusterResources string   `json:"cluster_resources,omitempty"`
	Infra            string   `json:"infra,omitempty"`
	RecoveryCount    int      `json:"recovery_count"`
	Details          *string  `json:"details"`
	FailureReason    *string  `json:"failure_reason"`
	UserName         string   `json:"user_name,omitempty"`
	UserHash         string   `json:"user_hash,omitempty"`
	SubmittedAt      *float64 `json:"submitted_at"`
	StartAt          *float64 `json:"start_at"`
	EndAt            *float64 `json:"end_at"`
	Pool             *string  `json:"pool"`
	CurrentCluster   *string  `json:"current_cluster_name,omitempty"`
	JobIDOnPool      *int     `json:"job_id_on_pool_cluster,omitempty"`
	JobGroup         bool     `json:"is_job_group,omitempty"`
	PrimaryInGroup   *bool    `json:"is_primary_in_job_group,omitempty"`
	BatchTotal       *int     `json:"batch_total_batches,omitempty"`
	BatchDone        *int     `json:"batch_completed_batches,omitempty"`
	Metadata         Metadata `json:"metadata,omitempty"`
	Priority         int      `json:"priority,omitempty"`
	ArrayID          *int     `json:"array_id,omitempty"` // the first job of its array
	ArrayRank        *int     `json:"array_rank,omitempty"`
	ScheduleID       *int     `json:"schedule_id,omitempty"` // that submitted it

	Attempts []api.JobsAttempt `json:"attempts,omitempty"` // if asked for
}

// Metadata are free-form facts about a record, such as its git commit.
type Metadata map[string]any

// JobsQueue lists managed jobs, latest first.
func (c *Client) JobsQueue(ctx context.Context, b api.JobsQueueBody) (*Request[JobsPage], error) {
	b.Envelope = c.envelope()
	return post[JobsPage](ctx, c, "/jobs/queue/v2", b)
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

// JobEvent is something that happened to a task of a managed job.
type JobEvent struct {
	JobID     int     `json:"spot_job_id"`
	TaskID    *int    `json:"task_id"`
	NewStatus string  `json:"new_status"`
	Code      string  `json:"code"`
	Reason    string  `json:"reason"`
	Timestamp float64 `json:"timestamp"` // Unix seconds
}

// JobEvents lists what happened to a managed job, the newest first.
func (c *Client) JobEvents(ctx context.Context, b api.JobsEventsBody) (*Request[[]JobEvent], error) {
	b.Envelope = c.envelope()
	return post[[]JobEvent](ctx, c, "/jobs/events", b)
}

// DownloadJobLogs gathers a managed job's logs for [Client.Download].
func (c *Client) DownloadJobLogs(ctx context.Context, b api.JobsDownloadLogsBody) (*Request[map[string]string], error) {
	b.Envelope = c.envelope()
	return post[map[string]string](ctx, c, "/jobs/download_logs", b)
}

// ApplyPool makes or changes a pool.
func (c *Client) ApplyPool(ctx context.Context, b api.PoolApplyBody) (*Request[any], error) {
	b.Envelope = c.withBlob(b.FileMountsBlobID)
	return post[any](ctx, c, "/jobs/pool_apply", b)
}

// DownPools ends pools.
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
