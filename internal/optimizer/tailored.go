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

func (t tailored) Name() string                    { return t.name }
func (t tailored) DisplayName() string             { return t.display }
func (t tailored) Lacks() map[cloud.Feature]string { return t.lacks }
