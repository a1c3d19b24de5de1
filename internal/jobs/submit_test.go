package jobs

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
)

// What this version lacks is refused before anything is stored, with what to do
// instead.
func TestWhatIsLackingSaysWhatToDoInstead(t *testing.T) {
	m := newManager(newMemory(), nil, slog.New(slog.DiscardHandler), "s", t.TempDir(), 1)
	m.check = func(context.Context, string) error { return nil }
	submit := func(b api.JobsLaunchBody) error {
		_, err := m.Submit(t.Context(), cluster.Call{}, b)
		return err
	}
	for _, tt := range []struct {
		name    string
		err     error
		instead string
	}{
		{"a pool", submit(api.JobsLaunchBody{Task: "run: x\n", Pool: new("p")}), "--num-jobs"},
		{"a job group", submit(api.JobsLaunchBody{Task: "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"}), "depends_on: []"},
		{"a cancel by pool", m.Cancel(t.Context(), cluster.Call{}, api.JobsCancelBody{Pool: new("p")}), "sky jobs queue"},
	} {
		e, ok := errors.AsType[*api.Error](tt.err)
		if !ok || e.Type != api.ErrNotSupported || !strings.Contains(e.Message, "does not have") || !strings.Contains(e.Hint, tt.instead) {
			t.Errorf("%s: %v", tt.name, tt.err)
		}
	}
}
