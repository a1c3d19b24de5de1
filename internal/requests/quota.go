package requests

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// QuotaError means that a user has as many long requests waiting as one may. It
// was not recorded.
type QuotaError struct {
	User           string
	Waiting, Limit int
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%s has %d requests waiting for a free worker, and %d is the limit for one user. Wait until some have started, or cancel some: sky api status, sky api cancel ID",
		e.User, e.Waiting, e.Limit)
}

// admit refuses a long request of a user who has too many waiting. The count may
// be exceeded by as many as arrive at one moment.
func (e *Engine) admit(ctx context.Context, user state.User, schedule api.ScheduleType) error {
	limit := e.o.QueuedPerUser
	if schedule == api.ScheduleShort || limit < 0 {
		return nil
	}
	waiting, err := e.store.Requests().Waiting(ctx, user.ID)
	if err != nil {
		return err
	}
	if waiting >= limit {
		return &QuotaError{User: user.Name, Waiting: waiting, Limit: limit}
	}
	return nil
}
