package fsm

import (
	"slices"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestReplicaLifeCycle(t *testing.T) {
	walk(t, "replicas", Replicas(), append(slices.Clone(api.ReplicaStatuses), ReplicaAbsent))
	for _, s := range api.ReplicaStatuses {
		_, known := Replicas()[s]
		switch {
		case s == api.ReplicaUnknown:
			if known {
				t.Errorf("a replica can become %s", s)
			}
			continue
		case !known:
			t.Errorf("%s has no row", s)
			continue
		case s != api.ReplicaPending && len(Replicas().Into(s)) == 0:
			t.Errorf("%s cannot be reached", s)
		}
		// Whatever has machines can be stopped or is on its way out; whatever has none can be forgotten.
		_, stops := Replicas().Next(s, ReplicaStop)
		_, forgets := Replicas().Next(s, ReplicaForget)
		_, goes := Replicas().Next(s, ReplicaGone)
		if !stops && !forgets && !goes {
			t.Errorf("%s never ends", s)
		}
		if s.Failed() && !forgets {
			t.Errorf("%s stays for ever", s)
		}
	}
	for s, row := range Replicas() {
		if _, ok := row[ReplicaForget]; ok && s != api.ReplicaPending && !s.Failed() {
			t.Errorf("%s is forgotten with its machines", s)
		}
	}
}
