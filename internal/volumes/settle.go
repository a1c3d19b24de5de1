package volumes

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/state"
)

// Settle goes on with what was begun and is not over: volumes whose making or
// deleting a crash cut off, or their cloud would not do at the time. What somebody
// works on just then is passed over.
func (m *Manager) Settle(ctx context.Context) error {
	list, err := m.Store.Volumes().List(ctx, state.VolumeFilter{Stages: []state.VolumeStage{state.VolumeMaking, state.VolumeDeleting}})
	if err != nil {
		return err
	}
	errs := make([]error, len(list))
	var g errgroup.Group
	g.SetLimit(settleAtOnce)
	for i, v := range list {
		g.Go(func() error {
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				errs[i] = m.settle(ctx, v.Name)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// settleAtOnce is how many volumes are settled in parallel: a cloud that does not
// answer must not keep the others waiting.
const settleAtOnce = 16

func (m *Manager) settle(ctx context.Context, name string) error {
	ctx, unlock, ok, err := m.locks.TryLock(ctx, name)
	if err != nil || !ok {
		return err
	}
	defer unlock()
	v, err := m.Store.Volumes().Get(ctx, name)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil
	case err != nil:
		return err
	case v.Stage == state.VolumeMaking:
		p, err := m.volumer(v.Is.Place.Cloud)
		if err != nil {
			return err
		}
		if v, err = m.finishMake(ctx, m.Config(), p, v, false); err == nil {
			m.Log.InfoContext(ctx, "volume made, as was begun before", "volume", v.Name)
		}
		return err
	case v.Stage == state.VolumeDeleting:
		if err := m.finishDelete(ctx, v); err != nil {
			return err
		}
		m.Log.InfoContext(ctx, "volume deleted, as was begun before", "volume", v.Name)
	}
	return nil
}

// Refresh asks the clouds about all volumes and notes what they say.
func (m *Manager) Refresh(ctx context.Context) error {
	list, err := m.Store.Volumes().List(ctx, state.VolumeFilter{})
	if err != nil || len(list) == 0 {
		return err
	}
	return m.look(ctx, m.Config(), list)
}

// usualInterval is how often volumes are looked at.
const usualInterval = time.Minute

// interval is how often volumes are looked at, as the configuration has it.
func (m *Manager) interval() time.Duration {
	if s := m.Config().Int("daemons", "skypilot-volume-status-refresh-daemon", "interval_seconds"); s > 0 {
		return time.Duration(s) * time.Second
	}
	return usualInterval
}

// Keep settles and refreshes, at once and again and again until ctx ends. once
// runs its argument unless some server of the installation did within the period.
func (m *Manager) Keep(ctx context.Context, once func(ctx context.Context, period time.Duration, name string, f func(context.Context))) {
	for {
		period := m.interval()
		once(ctx, period, "volumes", func(ctx context.Context) {
			if err := m.Settle(ctx); err != nil && ctx.Err() == nil {
				m.Log.WarnContext(ctx, "not every interrupted volume could be settled", "err", err)
			}
			if err := m.Refresh(ctx); err != nil && ctx.Err() == nil {
				m.Log.WarnContext(ctx, "volumes could not be refreshed", "err", err)
			}
		})
		t := time.NewTimer(period)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
