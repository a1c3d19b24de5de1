// Package docker rents containers of the engine on this machine. A node is a
// container, a cluster has a network of its own, and what identifies them are
// labels. A stopped container keeps its disk.
//
// Any image will do that has a shell: nothing in it needs to be prepared.
package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Name is what users write after "infra:".
const Name = "docker"

// InstanceType is the only kind of machine there is.
const InstanceType = "container"

// DefaultImage is what runs when a task names none.
const DefaultImage = "ubuntu:24.04"

// Provider rents containers.
type Provider struct {
	engine *Engine
	turns  cloud.KeyedLock
	gpus   func(context.Context) map[string]float64
}

// New returns the provider. It does no I/O.
func New(e *Engine) *Provider { return &Provider{engine: e, gpus: nvidiaGPUs} }

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "Docker" }

// Pace is without bounds: the engine is on this machine.
func (p *Provider) Pace() (perSecond float64, burst int) { return 0, 0 }

// Features says what containers cannot be asked for.
func (p *Provider) Features() cloud.Features {
	const own = "the nodes are containers on this machine"
	return cloud.Features{OnServer: true, Containers: true, MaxNameLength: maxName, Lacks: map[cloud.Feature]string{
		cloud.FeatureSpot:      own + ", which nobody sells as spot",
		cloud.FeatureImage:     own + " and run container images (image_id: docker:...)",
		cloud.FeatureDiskTier:  own + " and use its disk",
		cloud.FeatureNetTier:   own + " and use its network",
		cloud.FeatureLocalDisk: own + " and use its disk",
		cloud.FeaturePorts:     own + "; their ports are reached at their own addresses",
		cloud.FeatureStorage:   own + "; buckets are copied into them (mode: COPY), and cannot be mounted",
		cloud.FeatureCloneDisk: own + " and have no disks to clone",
	}}
}

const checkTimeout = 5 * time.Second

// Check asks the engine who it is.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	if !p.engine.Present() {
		return nil, &cloud.AuthError{Cloud: Name, Err: fmt.Errorf("no container engine listens on %s", p.engine.socket), Fix: "install and start Docker, or say where it listens: export DOCKER_HOST=unix:///path/to/docker.sock", NotSetUp: true}
	}
	cctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	i, err := p.engine.Info(cctx)
	switch {
	case err != nil && isPermission(err):
		return nil, &cloud.AuthError{Cloud: Name, Err: err, Fix: "let this user use the engine: sudo usermod -aG docker $USER, and log in again"}
	case err != nil:
		return nil, p.refused(ctx, cloud.Place{Cloud: Name}, err)
	case i.OSType != "" && i.OSType != "linux":
		return nil, &cloud.AuthError{Cloud: Name, Err: fmt.Errorf("the engine runs %s containers", i.OSType), Fix: "switch the engine to Linux containers"}
	}
	return cloud.Identity{i.Name + " (" + i.ID + ")"}, nil
}

// Offers is the engine's machine, free of charge.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) {
	cctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	i, err := p.engine.Info(cctx)
	if err != nil {
		return nil, p.refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	o := cloud.Offer{
		Place: cloud.Place{Cloud: Name}, InstanceType: InstanceType,
		CPUs: float64(i.NCPU), MemoryGiB: math.Floor(float64(i.MemTotal)/(1<<30)*10) / 10,
	}
	if _, ok := i.Runtimes["nvidia"]; ok {
		o.Accelerators = p.gpus(ctx)
	}
	return []cloud.Offer{o}, nil
}

// nvidiaGPUs are the GPUs of this machine, which is the engine's.
func nvidiaGPUs(ctx context.Context) map[string]float64 {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil
	}
	return cloud.NVIDIAAccelerators(string(out))
}

// label is a tag as the engine's filters want it.
func filters(id cloud.ClusterID) url.Values {
	labels := []string{cloud.TagInstallation}
	for k, v := range id.Tags() {
		labels = append(labels, k+"="+v)
	}
	b, _ := json.Marshal(map[string][]string{"label": labels})
	return url.Values{"all": {"1"}, "filters": {string(b)}}
}

// stem is how names of one cluster's things begin.
func stem(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return "sky-" + hex.EncodeToString(sum[:8])
}

// Prepare makes the cluster's network.
func (p *Provider) Prepare(ctx context.Context, spec cloud.LaunchSpec) error {
	if err := p.valid(spec); err != nil {
		return err
	}
	done, err := p.turns.Lock(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer done()
	_, err = p.network(ctx, spec.ID)
	return p.refused(ctx, spec.Offer.Place, err)
}

// maxName is the longest name of a cluster.
const maxName = 200

var nameFormat = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

func (p *Provider) valid(spec cloud.LaunchSpec) error {
	var err error
	switch o := spec.Offer; {
	case !nameFormat.MatchString(spec.ID.Name):
		err = fmt.Errorf("%.50q cannot be a name here: it takes up to 200 letters, digits, dots, underscores and hyphens", spec.ID.Name)
	case o.Region != "" || o.Zone != "":
		err = errors.New("the engine on this machine has no regions and zones")
	case o.InstanceType != "" && o.InstanceType != InstanceType:
		err = fmt.Errorf("there is one kind of machine, %q, and no %q", InstanceType, o.InstanceType)
	default:
		return nil
	}
	return &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
}

// Nodes lists the containers.
func (p *Provider) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	if !p.engine.Present() && id.Name == "" {
		return nil, nil // nothing was ever here, as far as can be told
	}
	have, err := p.list(ctx, id)
	if err != nil {
		return nil, p.refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	var nodes []cloud.Node
	for _, c := range have {
		n, err := c.node()
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b cloud.Node) int {
		if a.Cluster != b.Cluster {
			return strings.Compare(a.Cluster, b.Cluster)
		}
		return a.Rank - b.Rank
	})
	return nodes, nil
}

// A container that is stopped has so long to end by itself, and the engine so long to
// say that it is off.
const (
	stopGrace  = 5 * time.Second
	stopWithin = stopGrace + 10*time.Second
)

// Stop stops the containers and keeps their disks. A caller that leaves early does not
// end it: the engine goes on stopping, and lists a container as running until it is
// off. So nobody else changes the cluster before the engine has answered.
func (p *Provider) Stop(ctx context.Context, id cloud.ClusterID) error {
	done, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	have, err := p.list(ctx, id)
	if err != nil {
		done()
		return p.refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	stopped := make(chan error, 1)
	go func() {
		defer done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		stopped <- p.each(ctx, have, func(ctx context.Context, c container) error {
			err := p.engine.call(ctx, "POST", "/containers/"+c.ID+"/stop", url.Values{"t": {strconv.Itoa(int(stopGrace / time.Second))}}, nil, nil)
			if status(err) == 404 {
				return nil
			}
			return err
		})
	}()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Terminate removes the containers with their disks, and the network.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil
	}
	done, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	have, err := p.list(ctx, id)
	if err != nil {
		return p.refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	err = p.each(ctx, have, func(ctx context.Context, c container) error { return p.remove(ctx, c.ID) })
	if err != nil {
		return err
	}
	networks, err := p.networks(ctx, id)
	if err != nil {
		return p.refused(ctx, cloud.Place{Cloud: Name}, err)
	}
	for _, n := range networks {
		if err := p.engine.call(ctx, "DELETE", "/networks/"+n, nil, nil, nil); err != nil && status(err) != 404 {
			return p.refused(ctx, cloud.Place{Cloud: Name}, err)
		}
	}
	return nil
}

func (p *Provider) each(ctx context.Context, cs []container, f func(context.Context, container) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, c := range cs {
		g.Go(func() error { return f(gctx, c) })
	}
	return p.refused(ctx, cloud.Place{Cloud: Name}, g.Wait())
}

// remove waits until the container is gone; somebody else may be removing it.
func (p *Provider) remove(ctx context.Context, id string) error {
	for {
		err := p.engine.call(ctx, "DELETE", "/containers/"+id, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
		if err == nil || status(err) == 404 {
			return nil
		}
		if status(err) != 409 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
