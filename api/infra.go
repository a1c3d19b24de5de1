package api

// Bodies about what can be rented and what is enabled.

// EnabledCloudsBody is what GET /enabled_clouds asks.
type EnabledCloudsBody struct {
	Envelope
	Workspace *string `json:"workspace"`
	Expand    bool    `json:"expand"` // contexts and pools one by one
}

// EnabledCloudsBatchBody is what GET /enabled_clouds/batch asks.
type EnabledCloudsBatchBody struct {
	Envelope
	Workspaces []string `json:"workspaces"`
	Expand     bool     `json:"expand"`
}

// ListAcceleratorsBody selects offers with accelerators.
type ListAcceleratorsBody struct {
	Envelope
	GPUsOnly       *bool    `json:"gpus_only,omitempty"` // default true
	NameFilter     *string  `json:"name_filter"`         // regular expression
	RegionFilter   *string  `json:"region_filter"`
	QuantityFilter *float64 `json:"quantity_filter"`
	Clouds         Strings  `json:"clouds"`
	AllRegions     bool     `json:"all_regions"`
	RequirePrice   *bool    `json:"require_price,omitempty"`  // default true
	CaseSensitive  *bool    `json:"case_sensitive,omitempty"` // default true
}

// GPUAvailabilityBody asks a Kubernetes context for its GPUs.
type GPUAvailabilityBody struct {
	Envelope
	Context        *string  `json:"context"`
	NameFilter     *string  `json:"name_filter"`
	QuantityFilter *float64 `json:"quantity_filter"`
	IsSSH          *bool    `json:"is_ssh"`
}

// NodeInfoBody asks a Kubernetes context for its nodes.
type NodeInfoBody struct {
	Envelope
	Context *string `json:"context"`
}

// SlurmBody asks a Slurm cluster for its GPUs or nodes.
type SlurmBody struct {
	Envelope
	SlurmClusterName *string  `json:"slurm_cluster_name"`
	NameFilter       *string  `json:"name_filter"`
	QuantityFilter   *float64 `json:"quantity_filter"`
}

// LabelGPUsBody labels the nodes of a Kubernetes context with their GPUs.
type LabelGPUsBody struct {
	Envelope
	Context           *string `json:"context"`
	CleanupOnly       bool    `json:"cleanup_only"`
	WaitForCompletion *bool   `json:"wait_for_completion,omitempty"` // default true
}

// LocalUpBody asks whether a Kubernetes cluster that kind made can be used.
type LocalUpBody struct {
	Envelope
	GPUs      *bool   `json:"gpus,omitempty"` // default true
	Name      *string `json:"name"`
	PortStart *int    `json:"port_start"`
}

// LocalDownBody asks whether it can go.
type LocalDownBody struct {
	Envelope
	Name *string `json:"name"`
}

// SSHPoolBody deploys or ends a pool of own machines.
type SSHPoolBody struct {
	Envelope
	Infra   *string `json:"infra"`
	Cleanup bool    `json:"cleanup"`
}

// SSHPoolStatus reports whether a pool's machines can be used.
type SSHPoolStatus struct {
	PoolName    string `json:"pool_name"`
	ContextName string `json:"context_name"` // ssh-<pool>
	Status      string `json:"status"`       // Ready, Not Ready
	Reason      string `json:"reason"`
	Free        string `json:"free,omitempty"` // of the machines that can be used, in words
}

// SlurmNode is a node of a Slurm partition.
type SlurmNode struct {
	Name      string  `json:"node_name"`
	Partition string  `json:"partition"`
	State     string  `json:"node_state"`
	GPU       string  `json:"gpu_type"`
	TotalGPUs float64 `json:"total_gpus"`
	FreeGPUs  float64 `json:"free_gpus"`
	CPUs      float64 `json:"vcpu_count"`
	MemoryGB  float64 `json:"memory_gb"`
}
