package api

// ServiceStatus says how a service, or a pool, is.
type ServiceStatus string

// Statuses of services and pools.
const (
	ServiceControllerInit   ServiceStatus = "CONTROLLER_INIT"   // written down; nothing works on it yet
	ServiceReplicaInit      ServiceStatus = "REPLICA_INIT"      // replicas start, none is ready
	ServiceControllerFailed ServiceStatus = "CONTROLLER_FAILED" // nothing works on it any more
	ServiceReady            ServiceStatus = "READY"             // a replica is ready
	ServiceShuttingDown     ServiceStatus = "SHUTTING_DOWN"
	ServiceFailed           ServiceStatus = "FAILED"         // no replica is ready, and some have failed
	ServiceFailedCleanup    ServiceStatus = "FAILED_CLEANUP" // something of it could not be deleted
	ServiceNoReplica        ServiceStatus = "NO_REPLICA"
)

// ServiceStatuses lists every status of a service.
var ServiceStatuses = []ServiceStatus{
	ServiceControllerInit, ServiceReplicaInit, ServiceControllerFailed, ServiceReady,
	ServiceShuttingDown, ServiceFailed, ServiceFailedCleanup, ServiceNoReplica,
}

// ReplicaStatus says how a replica of a service, or a worker of a pool, is.
type ReplicaStatus string

// Statuses of replicas and workers.
const (
	ReplicaPending         ReplicaStatus = "PENDING"      // waits for its launch
	ReplicaProvisioning    ReplicaStatus = "PROVISIONING" // its machines are being rented and set up
	ReplicaStarting        ReplicaStatus = "STARTING"     // its program runs and is not ready yet
	ReplicaReady           ReplicaStatus = "READY"
	ReplicaNotReady        ReplicaStatus = "NOT_READY"     // was ready, and its probes fail
	ReplicaShuttingDown    ReplicaStatus = "SHUTTING_DOWN" // drains, or gives its machines back
	ReplicaPreempted       ReplicaStatus = "PREEMPTED"     // its machines were taken away, or will be soon
	ReplicaFailed          ReplicaStatus = "FAILED"        // its program or setup failed
	ReplicaFailedDelay     ReplicaStatus = "FAILED_INITIAL_DELAY"
	ReplicaFailedProbing   ReplicaStatus = "FAILED_PROBING"
	ReplicaFailedProvision ReplicaStatus = "FAILED_PROVISION"
	ReplicaFailedCleanup   ReplicaStatus = "FAILED_CLEANUP" // its machines could not be given back
	ReplicaUnknown         ReplicaStatus = "UNKNOWN"        // clients know it; nothing here becomes it
)

// ReplicaStatuses lists every status of a replica.
var ReplicaStatuses = []ReplicaStatus{
	ReplicaPending, ReplicaProvisioning, ReplicaStarting, ReplicaReady, ReplicaNotReady, ReplicaShuttingDown, ReplicaPreempted,
	ReplicaFailed, ReplicaFailedDelay, ReplicaFailedProbing, ReplicaFailedProvision, ReplicaFailedCleanup, ReplicaUnknown,
}

// Failed reports that a replica has failed and is gone, or cannot go.
func (s ReplicaStatus) Failed() bool {
	switch s {
	case ReplicaFailed, ReplicaFailedDelay, ReplicaFailedProbing, ReplicaFailedProvision, ReplicaFailedCleanup:
		return true
	}
	return false
}
