package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// newCloud is a cloud on a bad day.
func newCloud(seed uint64, jobs int) (*model.Cloud, cloud.Provider, []cloud.Offer, error) {
	cfg := model.Default(seed)
	cfg.Capacity, cfg.PageSize, cfg.Linger = max(jobs/4, 4), 50, 20*time.Minute
	c, err := model.New(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, f := range []model.Fault{
		{ID: "bad-day", Kind: model.Lose, Op: "instances.*", Chance: 0.02},
		{ID: "bad-day", Kind: model.Cut, Chance: 0.02},
		{ID: "bad-day", Kind: model.Throttle, Chance: 0.02},
		{ID: "bad-day", Kind: model.Slow, Chance: 0.03, Delay: 20 * time.Second},
	} {
		if err := c.Inject(f); err != nil {
			return nil, nil, nil, err
		}
	}
	var offers []cloud.Offer
	for _, r := range cfg.Regions {
		for _, z := range r.Zones {
			for _, spot := range []bool{false, true} {
				offers = append(offers, cloud.Offer{Place: cloud.Place{Cloud: fluffycloud.Name, Region: r.Name, Zone: z}, InstanceType: "puff-2", Spot: spot, HourlyPrice: 0.08})
			}
		}
	}
	return c, fluffycloud.New(fluffycloud.Options{API: c.Account("ann", "owner"), Poll: 5 * time.Second}), offers, nil
}

// persist asks a cloud again that did not answer or was busy, as the wrappers
// of package wrap do.
func persist(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		_, busy := errors.AsType[*cloud.ThrottledError](err)
		_, mute := errors.AsType[*cloud.UnreachableError](err)
		if !busy && !mute || try == 5 || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}
