package optimizer

import "github.com/skypilot-go/sky/internal/cloud"

// Block is what a plan must not use; provisioning rules out in the same words.
type Block = cloud.Block

func blocked(blocks []Block, o *cloud.Offer) bool {
	for i := range blocks {
		if blocks[i].Matches(o) {
			return true
		}
	}
	return false
}
