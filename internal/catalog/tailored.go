package catalog

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Tailor is a provider that cuts machines to the size that is asked for, and so
// has no list of them.
type Tailor interface {
	// Tailored looks at what there is now. sections are the settings that hold.
	Tailored(ctx context.Context, sections Sections) (Tailored, error)
}

// Sections are the settings of a cloud by region; "" is the cloud itself.
type Sections func(region string) map[string]any

// Tailored answers queries from what a look has found, without any I/O.
type Tailored interface {
	// Find lists the machines that could be cut for the query, cheapest first.
	Find(q Query) []cloud.Offer
	// Names lists what exists of a kind.
	Names(k NameKind) []string
	// WhyNot says for users why Find finds nothing, and what is nearest.
	WhyNot(q Query) string
}
