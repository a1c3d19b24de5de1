package api

// SweepBody asks for machines that carry this installation's tags and belong to
// no cluster on record: strays.
type SweepBody struct {
	Envelope
	Clouds       Strings  `json:"clouds"`        // by name; none: all that can be asked
	GraceMinutes *float64 `json:"grace_minutes"` // for which a machine must have been there; null: as configured
	// Terminate ends strays: those named by their ids in Strays, or all if that is
	// null.
	Terminate bool     `json:"terminate"`
	Strays    []string `json:"strays"`
	// Adopt takes them back into records instead, as clusters of the caller where no
	// tag names an owner.
	Adopt bool `json:"adopt"`
}

// SweepReport is what a sweep found and did.
type SweepReport struct {
	Strays []Stray `json:"strays"`
	// Unlisted are clouds, and accounts of them as "CLOUD (ACCOUNT)", that could not be asked,
	// and why.
	Unlisted map[string]string `json:"unlisted"`
	// Elsewhere means that another server sweeps at the moment: strays were listed
	// and none was ended.
	Elsewhere bool `json:"elsewhere"`
}

// Stray is machines of one former cluster or attempt that nothing on record
// claims.
type Stray struct {
	ID          string         `json:"id"` // names it in SweepBody
	Cloud       string         `json:"cloud"`
	Cluster     string         `json:"cluster"` // its name on the cloud
	ClusterHash string         `json:"cluster_hash"`
	Since       int64          `json:"since"` // Unix seconds: made, or first seen
	Machines    []StrayMachine `json:"machines"`
	Ended       bool           `json:"ended"`             // and proven gone
	Error       string         `json:"error"`             // why it could not be ended, or taken back
	Adopted     string         `json:"adopted,omitempty"` // the name of the cluster that it is now
}

// StrayMachine is one machine of a stray.
type StrayMachine struct {
	ID     string `json:"id"`
	State  string `json:"state"` // pending, running, stopping, stopped
	Region string `json:"region"`
	Zone   string `json:"zone"`
	IP     string `json:"ip"`
	// Account is the project or subscription, if it is another than the one that the server
	// works in.
	Account string `json:"account,omitempty"`
}
