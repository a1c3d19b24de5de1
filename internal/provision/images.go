package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// keptImage is what the machines of a cluster that has been up are made like.
func keptImage(m cloud.MachineSpec) cloud.MachineSpec {
	m.Clone = nil
	return m
}

// removeImage removes the image of a disk that a cluster starts from; nil is none.
func (e *Engine) removeImage(ctx context.Context, i *cloud.DiskImage) error {
	if i == nil {
		return nil
	}
	p, ok := e.providers.Get(i.Place.Cloud)
	if !ok {
		return fmt.Errorf("this version of sky knows no cloud %q", i.Place.Cloud)
	}
	cloner, ok := cloud.As[cloud.DiskCloner](p)
	if !ok {
		return nil
	}
	return cloner.RemoveImage(ctx, *i)
}

// RemoveImage removes the image that a cluster started from, and then its note of it. It
// returns the record as it is then.
func (e *Engine) RemoveImage(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	if err := e.removeImage(ctx, c.Machine.Clone); err != nil {
		return nil, err
	}
	return e.records.UpdateCluster(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Machine.Clone = nil
		return nil
	})
}

// needed are the hashes of clusters on record that may start from an image, and of those
// that have started and whose record has a note of it still.
func needed(clusters []*state.Cluster) (starting map[string]bool, started map[string]*state.Cluster) {
	starting, started = map[string]bool{}, map[string]*state.Cluster{}
	for _, c := range clusters {
		switch {
		case c.Machine.Clone == nil:
		case c.EverUp:
			started[c.Hash] = c
		default:
			starting[c.Hash] = true
		}
	}
	return starting, started
}

// sweepImages removes images of disks from which no cluster on record starts any more: those
// of launches that a crash cut off and that nobody resumed. Nobody else has a use for them.
// Clouds whose images may not be listed are left out: nothing was ever copied there.
func (e *Engine) sweepImages(ctx context.Context, o SweepOptions) (swept []SweptImage, err error) {
	var all []cloud.DiskImage
	for _, p := range e.providers.All() {
		cloner, ok := cloud.As[cloud.DiskCloner](p)
		if !ok || !o.asks(p.Name()) {
			continue
		}
		images, err := run(ctx, step{name: stepList, limit: imagesTimeout}, func(ctx context.Context) ([]cloud.DiskImage, error) {
			return cloner.DiskImages(ctx, e.install)
		})
		if err != nil {
			_, forbidden := errors.AsType[*cloud.PermissionError](err)
			_, login := errors.AsType[*cloud.AuthError](err)
			if !forbidden && !login {
				e.log.WarnContext(ctx, "images of disks not listed", "cloud", p.Name(), "err", err)
			}
			continue
		}
		all = append(all, images...)
	}
	// Images first: the record that needs one is written before it is made.
	clusters, err := e.records.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	starting, started := needed(clusters)
	listed := map[string]bool{}
	for _, i := range all {
		if starting[i.For.Hash] || listed[i.For.Hash] {
			continue
		}
		listed[i.For.Hash] = true
		s := SweptImage{DiskImage: i}
		if c := started[i.For.Hash]; c != nil {
			_, err = e.RemoveImage(ctx, c)
		} else {
			err = e.removeImage(ctx, &i)
		}
		if err != nil {
			s.Error = err.Error()
		}
		swept = append(swept, s)
	}
	for hash, c := range started { // whose image is gone already
		if !listed[hash] && o.asks(c.Offer.Cloud) {
			if _, err := e.RemoveImage(ctx, c); err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "an image of a disk not removed yet", "cluster", c.Name, "err", err)
			}
		}
	}
	return swept, nil
}

// SweptImage is an image of a disk that no cluster starts from, and why it could not be
// removed; "": it is gone.
type SweptImage struct {
	cloud.DiskImage
	Error string `json:"error,omitempty"`
}
