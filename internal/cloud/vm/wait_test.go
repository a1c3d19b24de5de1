package vm

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestWhatIsWaitedFor(t *testing.T) {
	p := New(nil, Options{DisplayName: "AWS"})
	for _, tt := range []struct {
		nodes int
		have  []Machine
		want  string
	}{
		{2, nil, "2 machines to run (not listed by AWS yet)"},
		{1, some("i-1 pending -"), "1 machine to run (i-1: pending)"},
		{2, some("i-1 running 0", "i-2 pending 1"), "1 of 2 machines to run (i-2: pending)"},
		{2, some("i-0 ended 1", "i-1 running 0", "i-2 stopping 1"), "1 of 2 machines to run (i-2: stopping)"},
		{6, some("i-1 running 0", "i-2 pending 1", "i-3 pending 2", "i-4 pending 3", "i-5 pending 4", "i-6 pending 5"), "5 of 6 machines to run (i-2: pending, i-3: pending, i-4: pending, 2 more)"},
		{2, some("i-1 running 0", "i-2 running -"), "AWS to list the ranks of the machines"},
	} {
		if got := p.waitsFor(cloud.LaunchSpec{Nodes: tt.nodes}, tt.have); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
