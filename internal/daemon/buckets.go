package daemon

import (
	"context"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
)

// registerBuckets makes the verbs of buckets known to the engine.
func (d *daemon) registerBuckets() {
	d.engine.HandleRead("sky.storage_ls", verb(func(ctx context.Context, c cluster.Call, _ api.Envelope) (any, error) {
		return d.buckets.List(ctx, c)
	}))
	d.engine.Handle("sky.storage_delete", api.ScheduleShort, silent(func(ctx context.Context, c cluster.Call, b api.StorageDeleteBody) error {
		if err := d.configure(&c, b.Envelope); err != nil {
			return err
		}
		return d.buckets.Delete(ctx, c, b.Name)
	}))
}
