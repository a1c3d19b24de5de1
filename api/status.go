package api

// RequestStatus is the state of a request: an API call in flight, durable.
type RequestStatus string

const (
	RequestPending   RequestStatus = "PENDING"
	RequestRunning   RequestStatus = "RUNNING"
	RequestSucceeded RequestStatus = "SUCCEEDED"
	RequestFailed    RequestStatus = "FAILED"
	RequestCancelled RequestStatus = "CANCELLED"
)

// Terminal reports whether the state can no longer change.
func (s RequestStatus) Terminal() bool {
	return s == RequestSucceeded || s == RequestFailed || s == RequestCancelled
}

// ClusterStatus is the state of a cluster.
type ClusterStatus string

const (
	ClusterInit         ClusterStatus = "INIT"
	ClusterUp           ClusterStatus = "UP"
	ClusterStopped      ClusterStatus = "STOPPED"
	ClusterAutostopping ClusterStatus = "AUTOSTOPPING"
	ClusterPending      ClusterStatus = "PENDING" // shown only: a launch is queued, no row yet
)

// JobStatus is the state of a job on a cluster, in the order of its life.
type JobStatus string

const (
	JobInit         JobStatus = "INIT"
	JobPending      JobStatus = "PENDING"
	JobSettingUp    JobStatus = "SETTING_UP"
	JobRunning      JobStatus = "RUNNING"
	JobFailedDriver JobStatus = "FAILED_DRIVER"
	JobSucceeded    JobStatus = "SUCCEEDED"
	JobFailed       JobStatus = "FAILED"
	JobFailedSetup  JobStatus = "FAILED_SETUP"
	JobCancelled    JobStatus = "CANCELLED"
)

// Terminal reports whether the job has ended. Terminal states are write-once.
func (s JobStatus) Terminal() bool {
	switch s {
	case JobFailedDriver, JobSucceeded, JobFailed, JobFailedSetup, JobCancelled:
		return true
	}
	return false
}

// Exit codes of following or waiting for a job.
const (
	ExitJobSucceeded   = 0
	ExitJobFailed      = 100
	ExitJobNotFinished = 101
	ExitJobNotFound    = 102
	ExitJobCancelled   = 103
)

// ExitCode is what following a job in this state ends with.
func (s JobStatus) ExitCode() int {
	switch s {
	case JobSucceeded:
		return ExitJobSucceeded
	case JobCancelled:
		return ExitJobCancelled
	case JobFailed, JobFailedSetup, JobFailedDriver:
		return ExitJobFailed
	}
	return ExitJobNotFinished
}

// WaitFor says what counts as activity for autostop.
type WaitFor string

const (
	WaitForJobsAndSSH WaitFor = "jobs_and_ssh"
	WaitForJobs       WaitFor = "jobs"
	WaitForNone       WaitFor = "none"
)
