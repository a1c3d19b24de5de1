package state

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

func TestDeliveredAreReadsThatSucceeded(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		now := time.Now()
		for id, r := range map[string]Request{
			"old-read":   {Name: "sky.status", Status: api.RequestSucceeded, FinishedAt: now.Add(-time.Hour)},
			"young-read": {Name: "sky.status", Status: api.RequestSucceeded, FinishedAt: now},
			"failed":     {Name: "sky.status", Status: api.RequestFailed, FinishedAt: now.Add(-time.Hour)},
			"running":    {Name: "sky.status", Status: api.RequestRunning},
			"launch":     {Name: "sky.launch", Status: api.RequestSucceeded, FinishedAt: now.Add(-time.Hour)},
		} {
			r.ID, r.Schedule, r.CreatedAt = id, api.ScheduleShort, now.Add(-2*time.Hour)
			ok(t, s.Requests().Create(t.Context(), &r))
		}
		ids := must(s.Requests().Delivered(t.Context(), []string{"sky.status", "sky.queue"}, now.Add(-time.Minute), 10))(t)
		same(t, "delivered", ids, []string{"old-read"})
		same(t, "of no names", must(s.Requests().Delivered(t.Context(), nil, now, 10))(t), []string(nil))
	})
}
