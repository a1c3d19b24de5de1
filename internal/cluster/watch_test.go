package cluster

import "testing"

// TestWhatAgentsTellIsNotedOnce: the record has it, and the list of events has
// it once however often the agent says so.
func TestWhatAgentsTellIsNotedOnce(t *testing.T) {
	m := full(t, 1)
	c, err := m.Store.Clusters().Get(t.Context(), "c0")
	if err != nil {
		t.Fatal(err)
	}
	const text = "head was to switch itself off and is still on"
	for range 3 {
		m.tell(t.Context(), c.Name, c.Hash, text)
	}
	m.tell(t.Context(), c.Name, "another life of it", "not this one")
	if now, err := m.Store.Clusters().Get(t.Context(), c.Name); err != nil || now.LastEvent != text {
		t.Errorf("%+v, %v", now, err)
	}
	if events, err := m.Store.Clusters().Events(t.Context(), c.Name, c.Hash, nil, 10); err != nil || len(events) != 1 || events[0].Reason != text {
		t.Errorf("%+v, %v", events, err)
	}
}
