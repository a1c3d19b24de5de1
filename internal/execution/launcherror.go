package execution

import (
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

// launchError says what a failed launch left.
func (x *Executor) launchError(c *state.Cluster, err error, keep bool) error {
	var unplaced *provision.UnplacedError
	if lost, ok := errors.AsType[*provision.LostError](err); ok {
		unplaced = lost.Unplaced(c.Offer, c.NumNodes, time.Since(c.StatusUpdatedAt))
		err = unplaced
	}
	if errors.As(err, &unplaced) {
		var history []string
		for _, a := range unplaced.Attempts {
			history = append(history, a.Error())
		}
		e := unavailable(err, history)
		if keep {
			e.Attributes["no_failover"] = true
			e.Hint = fmt.Sprintf("The cluster's disks are kept. Try again with: sky start %s; give it back with: sky down %[1]s", c.Name)
			if unplaced.Kind() == provision.TooDear.Kind() {
				e.Hint = fmt.Sprintf("The cluster's disks are kept. To start it at that price: sky launch -c %s with a task whose max_hourly_cost is higher. When the price has fallen: sky start %[1]s. To give it back: sky down %[1]s", c.Name)
			}
		} else {
			if unplaced.Retryable() {
				e.Hint = "To keep trying until there is room: sky launch --retry-until-up"
			}
		}
		e.Details = unplaced.Details()
		return e
	}
	if rose, ok := errors.AsType[*provision.RoseError](err); ok {
		return mustAsk(rose)
	}
	var apiErr *api.Error
	if errors.As(err, &apiErr) {
		return err
	}
	e := &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Launching cluster %q failed: %v", c.Name, err), Err: err}
	if keep {
		e.Hint = fmt.Sprintf("Its machines may run and cost money. Try again with: sky start %s; switch them off with: sky stop %[1]s", c.Name)
	}
	return e
}

// mustAsk ends a launch whose price rose: the client asks, and launches again with what was
// agreed to.
func mustAsk(rose *provision.RoseError) *api.Error {
	e := unavailable(rose, nil)
	e.Message = fmt.Sprintf("%v. Nothing was rented.", rose)
	e.Hint = "To launch without being asked about prices: sky launch -y. To bound them: max_hourly_cost in the task's resources"
	o := rose.Offer
	e.Details = map[string]any{
		"kind": api.KindPriceRose, "cloud": o.Cloud, "region": o.Region, "zone": o.Zone, "instance_type": o.InstanceType, "use_spot": o.Spot,
		"hourly_price": o.HourlyPrice, "planned_price": rose.Planned, "retryable": true,
	}
	return e
}
