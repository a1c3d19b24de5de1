package sky

import (
	"context"
	"net/url"

	"github.com/skypilot-go/sky/api"
)

// Storage is a bucket on record.
type Storage = api.Storage

// StorageList lists buckets.
func (c *Client) StorageList(ctx context.Context) (*Request[[]Storage], error) {
	return get[[]Storage](ctx, c, "/storage/ls", nil)
}

// StorageDelete deletes a bucket with its content.
func (c *Client) StorageDelete(ctx context.Context, name string) (*Request[any], error) {
	return post[any](ctx, c, "/storage/delete", api.StorageDeleteBody{Envelope: c.envelope(), Name: name})
}

// Volume is a disk that outlives clusters, or goes with one.
type Volume = api.Volume

// VolumeList lists volumes; refresh asks the clouds.
func (c *Client) VolumeList(ctx context.Context, refresh bool) (*Request[[]Volume], error) {
	q := url.Values{}
	if refresh {
		q.Set("refresh", boolean(true))
	}
	return get[[]Volume](ctx, c, "/volumes", q)
}

// VolumeApply makes or registers a volume.
func (c *Client) VolumeApply(ctx context.Context, b api.VolumeApplyBody) (*Request[any], error) {
	b.Envelope = c.envelope()
	return post[any](ctx, c, "/volumes/apply", b)
}

// VolumeDelete deletes volumes.
func (c *Client) VolumeDelete(ctx context.Context, names []string, purge bool) (*Request[any], error) {
	return post[any](ctx, c, "/volumes/delete", api.VolumesDeleteBody{Envelope: c.envelope(), Names: names, Purge: purge})
}

// ValidateVolume checks a volume before it is made; a refusal is an [*api.Error].
func (c *Client) ValidateVolume(ctx context.Context, b api.VolumeValidateBody) error {
	b.Envelope = c.envelope()
	return c.tell(ctx, "/volumes/validate", b)
}
