package execution

import (
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// settings are what holds for a task: the request's configuration with the
// task's config section laid over it. The error is a [*config.Error].
func settings(call cluster.Call, t *task.Task) (*config.Config, error) {
	c := call.Config
	if c == nil {
		var err error
		if c, err = config.FromMap(config.Server, config.Origin{}, nil); err != nil {
			return nil, err
		}
	}
	return c.ForTask(t.Config)
}
