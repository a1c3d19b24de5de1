package daemon

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/server"
)

// TestTheControllerAnswersEveryJobsRoute keeps the table of what is forwarded
// equal to the server's routes about managed jobs. Pools are refused everywhere.
func TestTheControllerAnswersEveryJobsRoute(t *testing.T) {
	forwarded := controller.Forwarded()
	for _, r := range server.Routes() {
		if !strings.HasPrefix(r.Path, "/jobs/") || strings.HasPrefix(r.Path, "/jobs/pool_") {
			continue
		}
		name := "sky." + r.Name
		if forwarded[name] != r.Path {
			t.Errorf("%s is forwarded to %q, not to %s", name, forwarded[name], r.Path)
		}
		delete(forwarded, name)
	}
	if len(forwarded) > 0 {
		t.Errorf("forwarded, but no routes: %v", forwarded)
	}
}
