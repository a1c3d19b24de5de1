package cloud

import "testing"

func TestWhatSlicesLack(t *testing.T) {
	for hosts, lacks := range map[int]bool{0: false, 1: false, 4: true} {
		for f, stops := range map[Feature]bool{FeatureStop: true, FeatureAutostop: true, FeatureAutodown: false, FeatureSpot: false} {
			if why, got := LackingSlice(hosts, f); got != (lacks && stops) || got != (why != "") {
				t.Errorf("nodes of %d machines, %s: %v, %q", hosts, f, got, why)
			}
		}
		if got, want := (Offer{Hosts: hosts}).Machines(3), 3*max(hosts, 1); got != want {
			t.Errorf("3 nodes of %d machines are %d, want %d", hosts, got, want)
		}
	}
}
