package daemon

import (
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/server"
)

// writers are requests that leave no trail and yet are more than reads: what they
// leave, or that they are answered with a refusal.
var writers = map[string]string{
	"sky.optimize":                 "its plan is its log, which clients follow",
	"sky.jobs.wait":                "it lasts as long as a job",
	"sky.download_logs":            "it gathers files",
	"sky.jobs.download_logs":       "it gathers files",
	"sky.jobs.pool_sync_down_logs": "not supported",
	"sky.serve.sync_down_logs":     "not supported",
	"sky.recipes.get":              "not supported",
}

// The results of requests that only read are not kept for longer than their
// callers need: every one of them must be known as such.
func TestWhatOnlyReadsIsKnown(t *testing.T) {
	reads := newTeam(t, teamConfig).d.engine.Reads()
	for _, r := range server.Routes() {
		name := "sky." + r.Name
		if r.Kind != server.Async || r.Changes() {
			continue
		}
		if isRead, why := slices.Contains(reads, name), writers[name]; isRead == (why != "") {
			t.Errorf("%s: its result is kept no longer than its caller needs it: %v; it is no read: %q", name, isRead, why)
		}
	}
}
