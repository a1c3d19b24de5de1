package api

// AvailabilityBody asks what attempts of the last week tell of room. Empty
// filters select everything.
type AvailabilityBody struct {
	Envelope
	Cloud        string   `json:"cloud"`
	Region       string   `json:"region"`
	InstanceType string   `json:"instance_type"`
	Accelerator  string   `json:"accelerator"` // in any case
	Quantity     *float64 `json:"quantity"`    // of accelerators on a machine
	Ask          bool     `json:"ask"`         // also clouds that can tell, now
}

// Availability is what is known of the chance to get one kind of machine in one
// place.
type Availability struct {
	Cloud        string             `json:"cloud"`
	Region       string             `json:"region"`
	Zone         string             `json:"zone"`
	InstanceType string             `json:"instance_type"`
	Accelerators map[string]float64 `json:"accelerators"`
	UseSpot      bool               `json:"use_spot"`
	Chance       float64            `json:"chance"`         // that the next attempt has it, 0 to 1
	Tries        int                `json:"tries"`          // of the last week that told of room
	Had          int                `json:"had"`            // of these
	Median       float64            `json:"median_seconds"` // of those that had it; 0: none did
	LastTry      int64              `json:"last_try"`       // Unix seconds
	LastOutcome  string             `json:"last_outcome"`
	LastMessage  string             `json:"last_message"` // in the cloud's own words
	// PassedOver means that it is tried last, because it was refused: until then,
	// or if that is 0 until the credentials change.
	PassedOver      bool  `json:"passed_over"`
	PassedOverUntil int64 `json:"passed_over_until"`
	// Now is what the cloud says when asked: "available", "none" or "unknown"; "":
	// it was not asked.
	Now       string `json:"now"`
	NowReason string `json:"now_reason"`
	// Stock is how much there is, from clouds that say so: "high", "medium" or "low"; NowAt is
	// when the cloud was asked, in Unix seconds.
	Stock string `json:"stock"`
	NowAt int64  `json:"now_at"`
}
