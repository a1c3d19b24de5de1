package execution

import (
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// settings are what holds for a task: the request's configuration with the
// task's config section laid over it. The error is a [*config.Error], or an
// [*api.Error] if the task asks for a workspace that is not the caller's.
func settings(call cluster.Call, t *task.Task) (*config.Config, error) {
	if err := call.MayUse(t.Config); err != nil {
		return nil, err
	}
	c := call.Config
	if c == nil {
		var err error
		if c, err = config.FromMap(config.Server, config.Origin{}, nil); err != nil {
			return nil, err
		}
	}
	return c.ForTask(t.Config)
}
