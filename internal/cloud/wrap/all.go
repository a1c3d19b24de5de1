package wrap

import (
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// How often a cloud is called that says nothing about it: more than a server
// needs, and less than what makes clouds refuse.
const (
	usualPace  = 25
	usualBurst = 100
)

// All dresses every provider of a registry in all layers. record is told about
// every call as its caller sees it; nil: nobody is.
//
// Prepare and Launch are not repeated: package provision looks what became of a
// lost call before it makes another. Whoever checks a cloud waits for the answer
// and asks again if need be, so that is repeated once only.
func All(r *cloud.Registry, record func(name string, m Method, took time.Duration, err error)) *cloud.Registry {
	var dressed []cloud.Provider
	for _, p := range r.All() {
		layers := []Layer{Traces(p.Name())}
		if record != nil {
			layers = append(layers, Metrics(func(m Method, took time.Duration, err error) { record(p.Name(), m, took, err) }))
		}
		layers = append(layers,
			Retry(RetryOptions{Only: []Method{Offers, Nodes, Stop, Terminate, WhenOff}}),
			Retry(RetryOptions{Only: []Method{Check}, Tries: 2, First: 250 * time.Millisecond}),
			Deadlines(DefaultDeadlines()))
		if perSecond, burst := pace(p); perSecond > 0 {
			layers = append(layers, Rate(perSecond, burst))
		}
		dressed = append(dressed, With(p, layers...))
	}
	return cloud.NewRegistry(dressed...)
}

func pace(p cloud.Provider) (perSecond float64, burst int) {
	if own, ok := cloud.As[cloud.Pacer](p); ok {
		return own.Pace()
	}
	return usualPace, usualBurst
}
