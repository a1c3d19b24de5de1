package api

// Bodies and results of the benchmark verbs.

// Statuses of a candidate of a benchmark.
const (
	BenchmarkInit       = "INIT"       // its task does not run yet
	BenchmarkRunning    = "RUNNING"    // its task runs
	BenchmarkFinished   = "FINISHED"   // its task ran to its end
	BenchmarkTerminated = "TERMINATED" // its cluster or task ended before that
)

// BenchCreateBody records a benchmark before its clusters are launched.
type BenchCreateBody struct {
	Envelope
	Name       string           `json:"name"`
	Task       string           `json:"task"` // its name
	Candidates []BenchCandidate `json:"candidates"`
}

// BenchCandidate is a candidate of a new benchmark.
type BenchCandidate struct {
	ClusterName string `json:"cluster_name"`
	Resources   string `json:"resources"` // that are asked for, for people to read
}

// BenchListBody asks for all benchmarks, as they were read last.
type BenchListBody struct{ Envelope }

// BenchShowBody asks for one benchmark, as its clusters tell now.
type BenchShowBody struct {
	Envelope
	Name string `json:"name"`
}

// BenchDeleteBody forgets benchmarks.
type BenchDeleteBody struct {
	Envelope
	Names []string `json:"names"`
}

// Benchmark is one task on several resources.
type Benchmark struct {
	Name       string               `json:"name"`
	Task       string               `json:"task"`
	LaunchedAt float64              `json:"launched_at"`
	UserHash   string               `json:"user_hash"`
	UserName   string               `json:"user_name"`
	Workspace  string               `json:"workspace"`
	Candidates []BenchmarkCandidate `json:"candidates"`
}

// BenchmarkCandidate is one cluster of a benchmark and what is known of its task.
type BenchmarkCandidate struct {
	ClusterName   string            `json:"cluster_name"`
	ClusterHash   string            `json:"cluster_hash"`   // "": no such cluster was seen yet
	ClusterExists bool              `json:"cluster_exists"` // or is on its way
	Requested     string            `json:"requested"`
	Resources     string            `json:"resources"` // that were rented
	NumNodes      int               `json:"num_nodes"`
	HourlyPrice   float64           `json:"hourly_price"` // $ of all nodes
	Status        string            `json:"status"`
	JobStatus     string            `json:"job_status"`
	RunStart      *float64          `json:"run_start"` // Unix seconds; provisioning and setup come before
	RunEnd        *float64          `json:"run_end"`   // only of a task that succeeded
	Summary       *BenchmarkSummary `json:"summary"`
	Problem       string            `json:"problem"` // why the cluster could not be asked
	Report        *BenchmarkReport  `json:"report"`
}

// BenchmarkSummary is a summary.json that a task writes while it goes on. Times are
// Unix seconds.
type BenchmarkSummary struct {
	BootTime           float64  `json:"boot_time"`
	CreateTime         float64  `json:"create_time"` // of the process
	WarmupSteps        int      `json:"warmup_steps"`
	TotalSteps         *int     `json:"total_steps"`
	NumSteps           int      `json:"num_steps"` // that ended
	FirstStepTime      *float64 `json:"first_step_time"`
	WarmupEndTime      *float64 `json:"warmup_end_time"`
	LastStepTime       *float64 `json:"last_step_time"`
	TimePerStep        *float64 `json:"time_per_step"` // seconds
	EstimatedTotalTime *float64 `json:"estimated_total_time"`
}

// BenchmarkReport is what follows from a candidate; null: it is not known.
type BenchmarkReport struct {
	Duration       *float64 `json:"duration"` // seconds
	Spent          *float64 `json:"spent"`    // $ for that time
	Steps          *int     `json:"steps"`
	SecondsPerStep *float64 `json:"seconds_per_step"`
	CostPerStep    *float64 `json:"cost_per_step"`
	EstimatedHours *float64 `json:"estimated_hours"` // from the process's start to the last step
	EstimatedCost  *float64 `json:"estimated_cost"`
}
