package cluster

import (
	"fmt"
	"math"
	"time"

	"github.com/skypilot-go/sky/api"
)

// gracefulDefault is how long processes that are ended gracefully have between TERM
// and KILL if nobody says.
const gracefulDefault = time.Hour

// Grace is how long processes have between TERM and KILL, as a request's options
// "graceful" and "graceful_timeout" say; 0: as usual.
func Grace(graceful bool, seconds *int) (time.Duration, error) {
	switch {
	case seconds != nil && *seconds < 0:
		return 0, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("graceful_timeout is in seconds, and %d is less than none.", *seconds)}
	case !graceful:
		return 0, nil
	case seconds == nil:
		return gracefulDefault, nil
	}
	return time.Duration(*seconds) * time.Second, nil
}

// graceSeconds is a grace as agents are told it: none is as usual, and a part of a
// second is a whole one.
func graceSeconds(d time.Duration) int { return int(math.Ceil(max(d, 0).Seconds())) }
