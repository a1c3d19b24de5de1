package execution

import "github.com/skypilot-go/sky/internal/state"

// makesContainers tells whether the cloud's nodes are containers themselves.
func (x *Executor) makesContainers(name string) bool {
	p, ok := x.Providers.Get(name)
	return ok && p.Features().Containers
}

// noteContainer notes the container in which everything runs on the machines
// that a cluster got.
func (x *Executor) noteContainer(c *state.Cluster) {
	if _, container := c.Machine.ImagesAt(c.Offer.Place); container != "" && !x.makesContainers(c.Offer.Cloud) {
		c.Notes.Container = container
	}
}
