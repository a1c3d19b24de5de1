package api

// Bodies of the service verbs (prefix /serve).

// ServeUpBody starts a service.
type ServeUpBody struct {
	Envelope
	Task        string `json:"task"`
	ServiceName string `json:"service_name"`
}

// ServeUpdateBody moves a service to a new version of its task.
type ServeUpdateBody struct {
	Envelope
	Task        string `json:"task"`
	ServiceName string `json:"service_name"`
	Mode        string `json:"mode"` // rolling, blue_green, canary
	// Weight is the share of the requests that a canary gets, in percent; 0: as its
	// task says.
	Weight float64 `json:"weight,omitempty"`
}

// ServeDownBody ends services.
type ServeDownBody struct {
	Envelope
	ServiceNames Strings `json:"service_names"`
	All          bool    `json:"all"`
	Purge        bool    `json:"purge"`
}

// ServeTerminateReplicaBody ends one replica.
type ServeTerminateReplicaBody struct {
	Envelope
	ServiceName string `json:"service_name"`
	ReplicaID   int    `json:"replica_id"`
	Purge       bool   `json:"purge"`
}

// ServeStatusBody selects services; nil names means all.
type ServeStatusBody struct {
	Envelope
	ServiceNames Strings `json:"service_names"`
}

// ServeLogsBody follows the log of a service's controller, balancer or replica.
type ServeLogsBody struct {
	Envelope
	ServiceName string `json:"service_name"`
	Target      string `json:"target"` // controller, load_balancer, replica
	ReplicaID   *int   `json:"replica_id"`
	Follow      *bool  `json:"follow,omitempty"` // default true
	Tail        *int   `json:"tail"`
}

// ServeSyncLogsBody gathers a service's logs on the server.
type ServeSyncLogsBody struct {
	Envelope
	ServiceName string  `json:"service_name"`
	LocalDir    string  `json:"local_dir"`
	Targets     Strings `json:"targets"`
	ReplicaIDs  []int   `json:"replica_ids"`
	Tail        *int    `json:"tail"`
}

// ServeTurnBody promotes or rolls back the version of a service that is about to take
// over.
type ServeTurnBody struct {
	Envelope
	ServiceName string `json:"service_name"`
}
