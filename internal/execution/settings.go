package execution

import (
	"time"

	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/provision"
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

// provisionOptions are how places are chosen and tried, as the configuration has it.
func provisionOptions(c *config.Config) provision.Options {
	byPrice := c.Text("provision", "ranking") == "price"
	return provision.Options{
		Ranking:    provision.Ranking{PriceOnly: byPrice},
		Forget:     byPrice, // the order is then what the price list says
		HalfLife:   HalfLife(c),
		NoProbes:   !c.Bool("provision", "ask_first"),
		Hedge:      c.Int("provision", "hedge"),
		HedgePrice: c.Float("provision", "hedge_price"),
	}
}

// HalfLife is how soon what an attempt has seen counts half.
func HalfLife(c *config.Config) time.Duration {
	return time.Duration(c.Float("provision", "availability_half_life_minutes") * float64(time.Minute))
}

// patience is for how long --retry-until-up tries; 0: for ever.
func patience(c *config.Config) time.Duration {
	return time.Duration(c.Float("provision", "retry_hours") * float64(time.Hour))
}
