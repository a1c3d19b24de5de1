package daemon

import (
	"context"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

// registerVolumes makes the verbs of volumes known to the engine.
func (d *daemon) registerVolumes() {
	d.engine.HandleRead("sky.volume_list", verb(func(ctx context.Context, c cluster.Call, b api.VolumesListBody) (any, error) {
		if err := d.configure(&c, b.Envelope); err != nil {
			return nil, err
		}
		return d.volumes.List(ctx, c, b)
	}))
	d.engine.Handle("sky.volume_apply", api.ScheduleShort, silent(func(ctx context.Context, c cluster.Call, b api.VolumeApplyBody) error {
		if err := d.configure(&c, b.Envelope); err != nil {
			return err
		}
		return d.volumes.Apply(ctx, c, b)
	}))
	d.engine.Handle("sky.volume_delete", api.ScheduleShort, silent(func(ctx context.Context, c cluster.Call, b api.VolumesDeleteBody) error {
		if err := d.configure(&c, b.Envelope); err != nil {
			return err
		}
		return d.volumes.Delete(ctx, c, b)
	}))
}

// validateVolume answers /volumes/validate.
func (d *daemon) validateVolume(_ context.Context, b api.VolumeValidateBody, _ state.User) error {
	return d.volumes.Validate(b)
}
