package api

// CostReportBody selects clusters, present and past.
type CostReportBody struct {
	Envelope
	Days             *int     `json:"days,omitempty"` // default 30; 0: all history
	ClusterHashes    []string `json:"cluster_hashes"`
	ClusterNames     []string `json:"cluster_names"`
	DashboardSummary bool     `json:"dashboard_summary_response"`
}

// CostRecord is what one cluster, past or present, ran and cost.
type CostRecord struct {
	Name             string             `json:"name"`
	LaunchedAt       int64              `json:"launched_at"`
	Duration         int64              `json:"duration"` // seconds
	NumNodes         int                `json:"num_nodes"`
	Resources        *LaunchedResources `json:"resources"` // null: clients could not price it
	ClusterHash      string             `json:"cluster_hash"`
	UsageIntervals   [][2]*int64        `json:"usage_intervals"` // Unix seconds; the end is null while it runs
	Status           *ClusterStatus     `json:"status"`          // null: terminated
	TotalCost        float64            `json:"total_cost"`      // $
	HourlyPrice      float64            `json:"hourly_price"`    // $ for all nodes, as rented
	UserHash         string             `json:"user_hash"`
	UserName         string             `json:"user_name"`
	Workspace        string             `json:"workspace"`
	LastUse          string             `json:"last_use"`
	ResourcesStr     string             `json:"resources_str"`
	ResourcesStrFull string             `json:"resources_str_full"`
	Cloud            string             `json:"cloud"`
	Region           string             `json:"region"`
}
