package docker

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/proc"
)

// Launch makes the containers that are missing and starts those that are off.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := p.Prepare(ctx, spec); err != nil {
		return nil, err
	}
	done, err := p.turns.Lock(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	network, err := p.network(ctx, spec.ID)
	if err != nil {
		return nil, p.refused(ctx, spec.Offer.Place, err)
	}
	image := imageOf(spec)
	if err := p.pull(ctx, spec, image); err != nil {
		return nil, err
	}
	have, err := p.list(ctx, spec.ID)
	if err != nil {
		return nil, p.refused(ctx, spec.Offer.Place, err)
	}
	ranks := map[int]bool{}
	for rank := range spec.Nodes {
		ranks[rank] = true
	}
	for _, c := range have {
		ranks[c.rank()] = true
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for rank := range ranks {
		g.Go(func() error { return p.up(gctx, spec, rank, image, network, have) })
	}
	if err := g.Wait(); err != nil {
		return nil, p.refused(ctx, spec.Offer.Place, err)
	}
	return p.Nodes(ctx, spec.ID)
}

func imageOf(spec cloud.LaunchSpec) string {
	if image := strings.TrimPrefix(spec.ImageID, "docker:"); image != "" {
		return image
	}
	return DefaultImage
}

func (p *Provider) pull(ctx context.Context, spec cloud.LaunchSpec, image string) error {
	err := p.engine.call(ctx, "GET", "/images/"+image+"/json", nil, nil, nil)
	if status(err) != 404 {
		return p.refused(ctx, spec.Offer.Place, err)
	}
	cloud.ReportWait(ctx, "the image "+image+" to be pulled")
	pull, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	err = p.engine.Pull(pull, image)
	if err == nil || ctx.Err() != nil {
		return p.refused(ctx, spec.Offer.Place, err)
	}
	err = fmt.Errorf("the image %s is not here and cannot be pulled: %w", image, err)
	if code := status(err); code == 400 || code == 403 || code == 404 {
		return &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	return p.refused(ctx, spec.Offer.Place, err)
}

// pullPatience bounds pulling an image, which may be large and its registry slow.
const pullPatience = 30 * time.Minute

// LaunchLimit is what the image may take, and containers to start.
func (p *Provider) LaunchLimit(cloud.LaunchSpec) time.Duration { return pullPatience + time.Minute }

// exitGone is what a container's first process ends with when the node gave
// itself back.
const exitGone = 77

// first is what keeps a container alive. When the container is stopped, it lets programs
// save what they have; it tells in its exit code when it is not wanted any more.
var first = proc.FirstProcess(proc.AgentOfHome, "trap 'exit 77' USR1\n")

// up makes one node exist and run.
func (p *Provider) up(ctx context.Context, spec cloud.LaunchSpec, rank int, image, network string, have []container) error {
	name := fmt.Sprintf("%s-%d", stem(spec.ID), rank)
	i := slices.IndexFunc(have, func(c container) bool { return c.rank() == rank })
	if i >= 0 && have[i].gone() {
		if err := p.remove(ctx, have[i].ID); err != nil {
			return err
		}
		i = -1
	}
	if i < 0 {
		if err := p.create(ctx, spec, rank, image, network, name); err != nil && status(err) != 409 {
			return err
		}
	} else {
		name = have[i].ID
		switch have[i].State {
		case "running":
			return nil
		case "paused":
			return p.engine.call(ctx, "POST", "/containers/"+name+"/unpause", nil, nil, nil)
		}
	}
	err := p.engine.call(ctx, "POST", "/containers/"+name+"/start", nil, nil, nil)
	if status(err) == 400 && strings.Contains(err.Error(), "/bin/sh") {
		return &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the image %s has no shell: %w", image, err)}
	}
	return err
}

func (p *Provider) create(ctx context.Context, spec cloud.LaunchSpec, rank int, image, network, name string) error {
	host := map[string]any{"NetworkMode": network, "RestartPolicy": map[string]any{"Name": "no"}}
	for _, n := range spec.Offer.Accelerators {
		host["DeviceRequests"] = []any{map[string]any{"Driver": "nvidia", "Count": int(math.Ceil(n)), "Capabilities": [][]string{{"gpu"}}}}
	}
	err := cloud.Settled(ctx, func(ctx context.Context) error {
		return p.engine.call(ctx, "POST", "/containers/create", url.Values{"name": {name}}, map[string]any{
			"Image": image, "Entrypoint": []string{"/bin/sh", "-c", first}, "Cmd": []string{},
			"Hostname": hostname(spec.ID.Name, rank), "Labels": spec.NodeTags(rank), "HostConfig": host,
			"StopTimeout": int((proc.Grace + 5*time.Second) / time.Second),
		}, nil)
	})
	return err
}

// hostname is what the node calls itself: a label of at most 63 characters.
func hostname(cluster string, rank int) string {
	end := "-" + strconv.Itoa(rank)
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r == '.' || r == '_' {
			return '-'
		}
		return r
	}, cluster), "-")
	return name[:min(len(name), 63-len(end))] + end
}

// network returns the id of the cluster's network, which is made if there is
// none. Names are no help: the engine lets two networks have the same.
func (p *Provider) network(ctx context.Context, id cloud.ClusterID) (string, error) {
	have, err := p.networks(ctx, id)
	if err != nil {
		return "", err
	}
	if len(have) == 0 {
		err := cloud.Settled(ctx, func(ctx context.Context) error {
			return p.engine.call(ctx, "POST", "/networks/create", nil, map[string]any{
				"Name": stem(id), "CheckDuplicate": true, "Driver": "bridge", "Labels": id.Tags(),
			}, nil)
		})
		if err != nil && status(err) != 409 { // 409: another server was quicker
			return "", err
		}
		if have, err = p.networks(ctx, id); err != nil {
			return "", err
		}
	}
	if len(have) == 0 {
		return "", fmt.Errorf("the network %s belongs to somebody else", stem(id))
	}
	return slices.Min(have), nil
}

func (p *Provider) networks(ctx context.Context, id cloud.ClusterID) ([]string, error) {
	var list []struct {
		ID string `json:"Id"`
	}
	q := filters(id)
	q.Del("all")
	if err := p.engine.call(ctx, "GET", "/networks", q, nil, &list); err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return ids, nil
}
