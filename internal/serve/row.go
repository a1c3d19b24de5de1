package serve

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skypilot-go/sky/internal/serve/probe"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/state"
)

// row is a replica: what decisions know of it, and where it is.
type row struct {
	replicas.Replica
	at state.ServiceReplica
}

func readRow(r *state.ServiceReplica) (row, error) {
	out := row{at: *r}
	if err := json.Unmarshal(r.State, &out.Replica); err != nil {
		return out, fmt.Errorf("the stored state of replica %d: %w", r.ID, err)
	}
	return out, nil
}

// stored is the row as it is to be written.
func (r row) stored() (*state.ServiceReplica, error) {
	b, err := json.Marshal(r.Replica)
	out := r.at
	out.State = b
	return &out, err
}

// watched is what is known of a replica beside its life: what probes have said so far,
// and the network that its address is in (see [reachOf]).
type watched struct {
	probe.History
	Network string `json:"network,omitempty"`
}

func (r row) watched() watched {
	var w watched
	if len(r.at.Probes) > 0 {
		_ = json.Unmarshal(r.at.Probes, &w) // else it begins anew
	}
	return w
}

// memory is what a service remembers beside its rows.
type memory struct {
	replicas.State
	Seen    int              `json:"seen"`    // versions up to this one have begun
	Routing replicas.Routing `json:"routing"` // as it was decided last
}

func readMemory(b []byte) (memory, error) {
	var m memory
	if len(b) == 0 {
		return m, nil
	}
	err := json.Unmarshal(b, &m)
	return m, err
}

func same(a, b *state.ServiceReplica) bool {
	return bytes.Equal(a.State, b.State) && bytes.Equal(a.Probes, b.Probes) && bytes.Equal(a.Progress, b.Progress) &&
		a.ClusterName == b.ClusterName && a.ClusterHash == b.ClusterHash && a.ClusterJob == b.ClusterJob && a.Endpoint == b.Endpoint
}
