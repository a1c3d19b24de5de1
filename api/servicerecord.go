package api

import "encoding/json"

// Service is a service, or a pool of workers.
type Service struct {
	Name                string    `json:"name"`
	Status              string    `json:"status"`
	Version             *int      `json:"version"`
	ActiveVersions      []int     `json:"active_versions"`
	Uptime              *float64  `json:"uptime"` // Unix seconds of when it came up
	Endpoint            *string   `json:"endpoint"`
	Policy              *string   `json:"policy"`
	LoadBalancingPolicy *string   `json:"load_balancing_policy"`
	RequestedResources  string    `json:"requested_resources_str"`
	TargetReplicas      *int      `json:"target_num_replicas,omitempty"`
	Pool                bool      `json:"pool"`
	TLS                 bool      `json:"tls_encrypted"`
	Replicas            []Replica `json:"replica_info"`
	Hash                string    `json:"hash"`
	Entrypoint          string    `json:"entrypoint"`
	YAML                string    `json:"yaml_content"`
	PoolYAML            *string   `json:"pool_yaml"`
	Port                *int      `json:"load_balancer_port"`
	UserHash            string    `json:"user_hash"`
	UserName            string    `json:"user_name"`
	Workspace           string    `json:"workspace"`

	// Clients of SkyPilot look for these; there is no controller of its own.
	ControllerJobID *int    `json:"controller_job_id"`
	ControllerPort  *int    `json:"controller_port"`
	ControllerPID   *int    `json:"controller_pid"`
	ControllerIP    *string `json:"controller_ip"`

	// Of the last minute, as balancers counted it; null: no balancer has reported.
	RequestsPerSecond *float64 `json:"requests_per_second"`
	P50Seconds        *float64 `json:"p50_seconds"` // time to the first byte
	P95Seconds        *float64 `json:"p95_seconds"`
	Why               []string `json:"why"` // it is not where it should be
}

// Replica is one copy of a service, or a worker of a pool.
type Replica struct {
	ID               int      `json:"replica_id"`
	Name             string   `json:"name"`
	Status           string   `json:"status"`
	Version          int      `json:"version"`
	Endpoint         *string  `json:"endpoint"`
	IsSpot           bool     `json:"is_spot"`
	LaunchedAt       *float64 `json:"launched_at"`
	Infra            string   `json:"infra"`
	ResourcesStr     string   `json:"resources_str"`
	ResourcesStrFull string   `json:"resources_str_full"`
	UsedBy           IntList  `json:"used_by"`
	Cloud            string   `json:"cloud"`
	Region           string   `json:"region"`
	InfoVersion      int      `json:"replica_info_version"`
	Handle           any      `json:"handle"` // null: nothing of it is needed
	Reason           string   `json:"reason"` // why it is not ready
}

// IntList is a number or a list of them on the wire.
type IntList []int

// UnmarshalJSON accepts null, 1 and [1, 2].
func (l *IntList) UnmarshalJSON(b []byte) error {
	var one *int
	if json.Unmarshal(b, &one) == nil {
		*l = nil
		if one != nil {
			*l = IntList{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int)(l))
}
