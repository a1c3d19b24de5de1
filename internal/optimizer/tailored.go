package optimizer

import (
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// TailoredSource makes a Source of a provider that cuts machines to size.
func TailoredSource(name, displayName string, t catalog.Tailored, lacks map[cloud.Feature]string) Source {
	return tailored{t, name, displayName, lacks}
}

type tailored struct {
	catalog.Tailored
	name, display string
	lacks         map[cloud.Feature]string
}

// OnlyNamed keeps the source out unless a request names it. Pods that cost
// nothing would win every plan, and the way into them is a preview.
func (t tailored) OnlyNamed() bool { return true }

func (t tailored) Name() string                    { return t.name }
func (t tailored) DisplayName() string             { return t.display }
func (t tailored) Lacks() map[cloud.Feature]string { return t.lacks }
