package api

// Bodies of the cluster verbs that only report.

// EndpointsBody asks where a cluster's open ports can be reached.
type EndpointsBody struct {
	Envelope
	Cluster string       `json:"cluster"`
	Port    *IntOrString `json:"port"` // nil: all
}

// ClusterEventsBody selects events of one cluster, by name or hash.
type ClusterEventsBody struct {
	Envelope
	ClusterName       *string `json:"cluster_name"`
	ClusterHash       *string `json:"cluster_hash"`
	EventType         string  `json:"event_type"` // comma list of DEBUG STATUS_CHANGE TERMINAL LAUNCH_PROGRESS
	IncludeTimestamps bool    `json:"include_timestamps"`
	Limit             *int    `json:"limit"`
}

// HookLogsBody follows or prints the log of a cluster's last hooks.
type HookLogsBody struct {
	Envelope
	ClusterName string  `json:"cluster_name"`
	Event       *string `json:"event"`            // stop, preemption, down
	Follow      *bool   `json:"follow,omitempty"` // default true
	Tail        int     `json:"tail"`             // 0: all
}

// ProvisionLogsBody names the cluster, or its worker, whose start is shown.
type ProvisionLogsBody struct {
	Envelope
	ClusterName string `json:"cluster_name"`
	Worker      *int   `json:"worker"`
}
