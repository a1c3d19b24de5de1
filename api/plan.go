package api

// PlanOptions ask for a plan on other terms than "what this server has
// enabled". They go with a dry run.
type PlanOptions struct {
	// AssumeEnabled plans as if these clouds were enabled, and no others; "all"
	// stands for every cloud that has a price list.
	AssumeEnabled []string `json:"assume_enabled,omitempty"`
	// CatalogDir holds other price lists, as CLOUD/vms.csv, on the server's disk;
	// only the owner of that machine may name one.
	CatalogDir string `json:"catalog_dir,omitempty"`
	// Explain accounts for every alternative; WantPlan puts the plan into the
	// result.
	Explain  bool `json:"explain,omitempty"`
	WantPlan bool `json:"want_plan,omitempty"`
	// Columns is how wide the tables of the plan may be, as the terminal that shows
	// them is; 0: as wide as they are. It goes with every launch.
	Columns int `json:"columns,omitempty"`
}

// Plan is what a dry run found.
type Plan struct {
	Tasks     []TaskPlan `json:"tasks"`
	TotalCost float64    `json:"total_cost"` // $ for the estimated time, transfers included
	TotalTime float64    `json:"total_time"` // seconds
}

// TaskPlan is where one task goes and where else it could go, best first.
type TaskPlan struct {
	Task       string            `json:"task"`
	NumNodes   int               `json:"num_nodes"`
	Chosen     PlanOffer         `json:"chosen"`
	Candidates []PlanOffer       `json:"candidates"`
	Explained  []PlanAlternative `json:"explained,omitempty"`
}

// PlanOffer is something that can be rented for a task.
type PlanOffer struct {
	Cloud            string             `json:"cloud"`
	Region           string             `json:"region"`
	Zone             *string            `json:"zone"`
	InstanceType     string             `json:"instance_type"`
	Accelerators     map[string]float64 `json:"accelerators"`
	UseSpot          bool               `json:"use_spot"`
	CPUs             float64            `json:"cpus"`
	MemoryGiB        float64            `json:"memory_gib"`
	HourlyPrice      float64            `json:"hourly_price"`       // $ per node
	TotalHourlyPrice float64            `json:"total_hourly_price"` // $ for all nodes but those in reservations
	Reserved         int                `json:"reserved,omitempty"` // nodes for which reservations have room: they are paid for already
	Unpriced         bool               `json:"unpriced,omitempty"` // nobody knows the price: it is 0 above
}

// PlanAlternative is an offer or a cloud, and why it was not taken.
type PlanAlternative struct {
	Cloud      string     `json:"cloud"`
	Offer      *PlanOffer `json:"offer,omitempty"`
	Request    string     `json:"request"`
	Why        string     `json:"why"`
	Constraint string     `json:"constraint,omitempty"`
	Reason     string     `json:"reason"`
}

// Details of an error that is about a field of a task: the name of the task, and the field as
// in [task.Error], such as "file_mounts./data.name".
const (
	DetailTask  = "task"
	DetailField = "field"
)

// Kinds of errors in Error.Details["kind"].
const (
	KindNoFeasibleResources = "no_feasible_resources"
	// KindPriceRose is of a launch with [LaunchBody.AgreedPrice] that has rented nothing: the
	// "hourly_price" of its details has to be agreed to first.
	KindPriceRose = "price_rose"
)
