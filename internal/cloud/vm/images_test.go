package vm

import "testing"

func TestTheNextStepOfAnImage(t *testing.T) {
	whole, making, failed, ending, part := Image{ID: "w", State: Running}, Image{ID: "m", State: Pending}, Image{ID: "f", State: Ended}, Image{ID: "e", State: Ending}, Image{ID: "p", State: Running, Part: true}
	for _, tt := range []struct {
		name  string
		all   []Image
		begun bool
		want  string
	}{
		{"nothing is there", nil, false, "begin"},
		{"it was asked for a moment ago", nil, true, "wait"},
		{"only a snapshot is left of one", []Image{part}, false, "begin"},
		{"it is being made", []Image{making}, false, "wait"},
		{"an earlier one is being removed", []Image{ending}, false, "wait"},
		{"it is whole", []Image{part, whole}, false, "ready w"},
		{"it failed", []Image{failed}, true, "failed f"},
	} {
		got := "wait"
		switch s := nextImage(tt.all, tt.begun); {
		case s.ready != nil:
			got = "ready " + s.ready.ID
		case s.failed != nil:
			got = "failed " + s.failed.ID
		case s.begin:
			got = "begin"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
