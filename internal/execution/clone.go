package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// cloneSource finds the disk that a launch with --clone-disk-from starts with a copy of, and
// makes the task one for the places where it can be used.
func (l *launch) cloneSource(ctx context.Context, from string) error {
	c, err := l.x.Store.Clusters().Get(ctx, l.name)
	switch {
	case err == nil && c.Notes.LaunchedBy == l.call.RequestID: // an earlier life of this request got so far
		if l.clone = c.Machine.Clone; l.clone == nil {
			return nil
		}
	case err == nil && c.EverUp:
		return refuseClone("Cluster %q exists, and only a new cluster can start with a copy of a disk: launch with another name (-c), or first give this one back: sky down %s", l.name, l.name)
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	default:
		if l.clone, err = l.x.diskOf(ctx, l.call, l.task, from, l.name); err != nil {
			return err
		}
	}
	return l.x.clonesOnly(l.task, l.clone)
}

// diskOf is the disk of a cluster that may be copied for a task on a new one.
func (x *Executor) diskOf(ctx context.Context, call cluster.Call, t *task.Task, from, name string) (*cloud.DiskImage, error) {
	c, err := x.Clusters.Get(ctx, from)
	if err != nil {
		return nil, err
	}
	cfg, err := settings(call, t)
	if err != nil {
		return nil, err
	}
	p, ok := x.Providers.Get(c.Offer.Cloud)
	if !ok {
		return nil, refuseClone("Cluster %q is on %q, which this version of sky does not know.", from, c.Offer.Cloud)
	}
	lacks, cannot := cloud.Lacking(p, c.Offer, cloud.FeatureCloneDisk)
	_, cloner := cloud.As[cloud.DiskCloner](p)
	switch {
	case !call.Scope.Sees(c.Workspace):
		return nil, &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Cluster %q is in a workspace that you may not use.", from)}
	case c.UserHash != call.User.ID: // the keys of its user are on it
		return nil, &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Cluster %q belongs to %s, and only its own user can copy its disk.", from, c.UserName)}
	case c.Workspace != cfg.ActiveWorkspace():
		return nil, refuseClone("Cluster %q is in workspace %q; launch there: sky launch --workspace %s", from, c.Workspace, c.Workspace)
	case from == name:
		return nil, refuseClone("A cluster cannot start with a copy of its own disk; choose another name (-c).")
	case c.Held():
		return nil, cluster.RefuseHeld(c)
	case cannot || !cloner:
		return nil, refuseClone("The disk of cluster %q cannot be copied: %s", from, cmp.Or(lacks, p.DisplayName()+" cannot copy disks"))
	case c.Machines() != 1:
		return nil, refuseClone("Cluster %q has %d machines, and only the disk of a cluster of one can be copied.", from, c.Machines())
	case c.Notes.Container != "":
		return nil, refuseClone("The tasks of cluster %q run in a container (%s), which is no part of a copy of its disk; launch from the image and copy the files (file_mounts, a bucket).", from, c.Notes.Container)
	case c.Status != api.ClusterStopped:
		return nil, refuseClone("Cluster %q is %s, and only the disk of one that is STOPPED can be copied. Stop it first: sky stop %s", from, c.Status, from)
	}
	if err := x.Clusters.SameAccount(ctx, c, p); err != nil {
		return nil, err
	}
	return &cloud.DiskImage{
		From: from, Of: x.Provision.ClusterID(c), Place: c.Offer.Place, InstanceType: c.Offer.InstanceType,
		SizeGB: cmp.Or(c.Machine.DiskGB, task.DefaultDiskSize),
	}, nil
}

func refuseClone(format string, args ...any) error {
	return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf(format, args...)}
}

// clonesOnly makes all requests of a task ones that a copy of a disk can fulfil, or says
// which cannot: the same cloud, the same region if none is named, a disk that is not smaller.
func (x *Executor) clonesOnly(t *task.Task, i *cloud.DiskImage) error {
	p, _ := x.Providers.Get(i.Place.Cloud)
	cloner, ok := cloud.As[cloud.DiskCloner](p)
	if !ok {
		return refuseClone("%s cannot copy disks.", i.Place.Cloud)
	}
	for n := range t.Resources {
		r := &t.Resources[n]
		switch {
		case r.Cloud != "" && !strings.EqualFold(r.Cloud, i.Place.Cloud):
			return refuseClone("The disk of cluster %s is on %s and cannot be used on %s; take: --infra %s", i.From, i.Place.Cloud, r.Cloud, i.Place.Cloud)
		case len(r.ImageID) > 0:
			return refuseClone("The machines start with the disk of cluster %s, which is instead of an image: take image_id out.", i.From)
		case r.DiskSize > 0 && r.DiskSize < i.SizeGB:
			return refuseClone("A disk of %d GB is too small for a copy of the one of cluster %s, which has %d GB: take --disk-size %d or more.", r.DiskSize, i.From, i.SizeGB, i.SizeGB)
		}
		r.Cloud, r.DiskSize = i.Place.Cloud, max(r.DiskSize, i.SizeGB)
		if r.Region == "" && r.Zone == "" && len(r.Regions) == 0 && len(r.Zones) == 0 {
			r.Region = i.Place.Region
		}
		if r.Region == "" {
			continue // the plan looks at each
		}
		if why := cloner.CannotClone(*i, cloud.Offer{Place: cloud.Place{Cloud: i.Place.Cloud, Region: r.Region}, InstanceType: i.InstanceType}); why != "" {
			return refuseClone("The disk of cluster %s cannot be used in %s: %s. Take: --infra %s/%s", i.From, r.Region, why, i.Place.Cloud, i.Place.Region)
		}
	}
	return nil
}

// cloneable is a source less the offers that cannot start with a copy of a disk.
type cloneable struct {
	optimizer.Source
	fits func(cloud.Offer) bool
}

func (s cloneable) Find(q catalog.Query) []cloud.Offer {
	var out []cloud.Offer
	for _, o := range s.Source.Find(q) {
		if s.fits(o) {
			out = append(out, o)
		}
	}
	return out
}

// cloneable leaves out what cannot start with a copy of the disk; with nil all stays.
func (x *Executor) cloneable(sources []optimizer.Source, i *cloud.DiskImage) []optimizer.Source {
	if i == nil {
		return sources
	}
	p, _ := x.Providers.Get(i.Place.Cloud)
	cloner, ok := cloud.As[cloud.DiskCloner](p)
	var out []optimizer.Source
	for _, s := range sources {
		if ok && s.Name() == i.Place.Cloud {
			out = append(out, cloneable{s, func(o cloud.Offer) bool { return cloner.CannotClone(*i, o) == "" }})
		}
	}
	return out
}

// makeImage makes the image that the machines of a new cluster start from, under the lock of
// the cluster whose disk it is: nobody starts that one meanwhile.
func (x *Executor) makeImage(ctx context.Context, call cluster.Call, c *state.Cluster) (*state.Cluster, error) {
	i := *c.Machine.Clone
	if i.ID != "" { // it stays until the cluster is up, or is given back
		return c, nil
	}
	p, _ := x.Providers.Get(i.Place.Cloud)
	cloner, ok := cloud.As[cloud.DiskCloner](p)
	if !ok {
		return nil, refuseClone("%s cannot copy disks.", i.Place.Cloud)
	}
	call.Out.Spin("Waiting for other requests on cluster " + i.From)
	sctx, unlock, err := x.Clusters.Lock(ctx, i.From)
	if err != nil {
		return nil, err
	}
	defer unlock()
	source, err := x.Store.Clusters().Get(ctx, i.From)
	switch gone := errors.Is(err, state.ErrNotFound); {
	case err != nil && !gone:
		return nil, err
	case gone || source.Hash != i.Of.Hash || source.Status != api.ClusterStopped || cluster.GivingBack(source):
		return nil, refuseClone("Cluster %q was started or given back before its disk was copied.", i.From)
	}
	call.Out.Spin("Copying the disk of cluster " + i.From)
	sctx, end := provision.ReportProgress(sctx, call.Out, "copying the disk of cluster "+i.From)
	made, err := cloner.MakeImage(sctx, i)
	end()
	if err != nil {
		return nil, fmt.Errorf("copying the disk of cluster %s: %w", i.From, err)
	}
	return x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		made.SizeGB = max(made.SizeGB, i.SizeGB)
		c.Machine.Clone = &made
		c.Machine.DiskGB = max(c.Machine.DiskGB, made.SizeGB)
		return nil
	})
}

// dropImage removes the image that a cluster which is up started from. What cannot be
// removed now stays on record, and the next sweep removes it.
func (x *Executor) dropImage(ctx context.Context, call cluster.Call, c *state.Cluster) (*state.Cluster, error) {
	call.Out.Spin("Removing the copy of the disk of cluster " + c.Machine.Clone.From + " that the machines started from")
	now, err := x.Provision.RemoveImage(ctx, c)
	switch {
	case err == nil:
		return now, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	fmt.Fprintf(call.Out, "⚠ The image of the disk of cluster %s could not be removed yet, which is tried again: %v\n", c.Machine.Clone.From, err)
	return c, nil
}
