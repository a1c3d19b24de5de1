package fsm

import (
	"sync"

	"github.com/skypilot-go/sky/api"
)

// RequestEvent is something that happens to a request.
type RequestEvent string

const (
	RequestClaimed   RequestEvent = "claimed"   // a server takes it and runs its function
	RequestResumed   RequestEvent = "resumed"   // a server takes it over from one that died
	RequestSucceeded RequestEvent = "succeeded" // the function returned a value
	RequestFailed    RequestEvent = "failed"    // the function returned an error
	RequestCancelled RequestEvent = "cancelled" // nobody wants it any more
)

// Requests is the life of a request.
var Requests = sync.OnceValue(func() Table[api.RequestStatus, RequestEvent] {
	return Table[api.RequestStatus, RequestEvent]{
		api.RequestPending: {
			RequestClaimed:   api.RequestRunning,
			RequestCancelled: api.RequestCancelled,
		},
		api.RequestRunning: {
			RequestResumed:   api.RequestRunning,
			RequestSucceeded: api.RequestSucceeded,
			RequestFailed:    api.RequestFailed,
			RequestCancelled: api.RequestCancelled,
		},
		api.RequestSucceeded: {},
		api.RequestFailed:    {},
		api.RequestCancelled: {},
	}
})
