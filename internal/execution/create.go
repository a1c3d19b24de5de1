package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/volumes"
	"github.com/skypilot-go/sky/task"
)

// lossesInLaunch is how many times in a row a launch may lose its machines before
// their agents run.
const lossesInLaunch = 3

// createAnew is create, again if the machines were taken away before their agents ran.
func (l *launch) createAnew(ctx context.Context) (*state.Cluster, error) {
	for try := 1; ; try++ {
		c, err := l.create(ctx)
		lost, ok := errors.AsType[*provision.LostError](err)
		if !ok || try == lossesInLaunch || ctx.Err() != nil {
			return c, err
		}
		fmt.Fprintf(l.call.Out, "%v; launching again\n", lost)
	}
}

// proposeEarlier says which machines the last cluster of this name had, if it ended by itself
// and the task leaves open where it runs.
func (l *launch) proposeEarlier(ctx context.Context) {
	open := !slices.ContainsFunc(l.task.Resources, func(r task.Resources) bool { return r.InstanceType != "" || r.Cloud != "" })
	if l.held != nil || !open {
		return
	}
	h, why, at, ok := l.x.Clusters.Vanished(ctx, l.call, l.name)
	if !ok {
		return
	}
	fmt.Fprintf(l.call.Out, "The earlier cluster %s ran on %s (%s) and was %s, as seen at %s. For the same machines and place: sky launch -c %s %s\n",
		l.name, h.Offer.Place, h.Offer.InstanceType, why, at.Local().Format("2006-01-02 15:04:05"), l.name, cluster.Again(h.Offer, h.NumNodes))
}

// create plans, writes the record, and gets the machines.
func (l *launch) create(ctx context.Context) (*state.Cluster, error) {
	l.proposeEarlier(ctx)
	offers, err := l.offers(ctx)
	if err != nil {
		return nil, err
	}
	best := offers.tiers[0][0]
	if err := mountable(best.Cloud, l.task); err != nil {
		return nil, err
	}
	if err := l.sayBuckets(ctx, best); err != nil {
		return nil, err
	}
	p, ok := l.x.Providers.Get(best.Cloud)
	if !ok {
		return nil, fmt.Errorf("this version of sky knows no cloud %q", best.Cloud)
	}
	warnDisk(l.call, p, l.task)
	settings, err := settings(l.call, l.task)
	if err != nil {
		return nil, err
	}
	certs, err := pki.NewAuthority(l.name)
	if err != nil {
		return nil, err
	}
	first := l.task.Resources[0]
	c := &state.Cluster{
		Name: l.name, Hash: uuid.NewString(),
		NameOnCloud: task.NameOnCloud(l.name, l.call.User.ID, p.Features().MaxNameLength),
		Status:      api.ClusterInit, Epoch: 0,
		UserHash: l.call.User.ID, UserName: l.call.User.Name, Workspace: settings.ActiveWorkspace(),
		LaunchedAt: time.Now(), StatusUpdatedAt: time.Now(),
		Offer: best, NumNodes: max(l.task.NumNodes, 1),
		Ports: first.Ports, Labels: first.Labels, Machine: machineSpec(l.task.Resources),
		Certs: state.Seal(certs), AutostopMinutes: -1,
		LastUse: command(l.call, ""), CreationCmd: l.call.Command, CreationYAML: l.task.UserYAML,
		Notes:     state.ClusterNotes{LaunchedBy: l.call.RequestID},
		LastEvent: "launching",
	}
	if l.clone != nil {
		image := *l.clone
		image.ID, image.For = "", l.x.Provision.ClusterID(c)
		c.Machine.Clone = &image
	}
	if login := login(l.task); login != nil {
		c.Notes.Registry = login.Server
	}
	l.x.Clusters.Mark(c)
	if l.held != nil {
		c.Holder = l.held.Holder
	}
	if err := l.x.Store.Clusters().CreateWith(ctx, c, l.volumes.Hold(c)); err != nil {
		return nil, volumes.NotThere(err)
	}
	return l.x.bring(ctx, l.call, l.task, c, offers, false)
}
