package aws

import (
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// slowToStart and slowToEnd are how many times longer than others machines
// without a hypervisor may take: their own firmware tests and wipes them, which
// has been seen to last 20 minutes and more.
const (
	slowToStart = 4
	slowToEnd   = 3
)

// bare matches the types of machines without a hypervisor, and the largest ones.
var bare = lazyregexp.New(`\.metal(-|$)|^u-|^u7|^mac`)

// patience is how long machines of a type may take to start.
func (p *Provider) patience(machine string) time.Duration {
	if bare.MatchString(machine) {
		return slowToStart * p.o.Timeout
	}
	return p.o.Timeout
}

// LaunchLimit is how long bare machines may take, which is longer than anybody
// expects; others take what they usually take.
func (p *Provider) LaunchLimit(spec cloud.LaunchSpec) time.Duration {
	if machine := spec.Offer.InstanceType; bare.MatchString(machine) {
		return p.patience(machine) + time.Minute // to make what they need
	}
	return 0
}
