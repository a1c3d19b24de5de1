// Package local rents "machines" on the machine that sky runs on: each node is
// a folder with a home of its own, a loopback address of its own, and whatever
// processes run in it. It is what sky uses when nothing else is set up, and the
// shortest way through the same code that rents from a cloud.
//
// What exists is what is on disk, below one root folder:
//
//	<root>/<cluster name>/node-<rank>/node.json   the machine: owner, address, on or off
//	<root>/<cluster name>/node-<rank>/home/       its disk
//
// A node's processes carry the node's folder in the environment variable
// [EnvNode]; that is how they are found, whoever started them. A machine that
// was on when the computer went down is off afterwards.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/proc"
)

// Name is what users write after "infra:".
const Name = "local"

// InstanceType is the only kind of machine there is.
const InstanceType = "local"

// EnvNode marks the processes of a node; its value is the node's folder.
const EnvNode = "SKY_NODE"

// Provider makes nodes below a root folder.
type Provider struct {
	root   string
	offer  func() cloud.Offer
	bootID func() string
}

// Options change where nodes live and what the machine is said to have.
type Options struct {
	// Root is the folder of all nodes.
	Root string
	// Offer overrides what is found out about this machine.
	Offer *cloud.Offer
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider {
	p := &Provider{root: o.Root, offer: thisMachine, bootID: proc.BootID}
	if o.Offer != nil {
		p.offer = func() cloud.Offer { return *o.Offer }
	}
	return p
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "Local" }

// Pace is without bounds: nobody else is asked.
func (p *Provider) Pace() (perSecond float64, burst int) { return 0, 0 }

// Features says what this machine cannot be asked for.
func (p *Provider) Features() cloud.Features {
	const own = "the nodes are processes on this machine"
	return cloud.Features{MaxNameLength: maxName, OnServer: true, Lacks: map[cloud.Feature]string{
		cloud.FeatureSpot:      own + ", which nobody sells as spot",
		cloud.FeatureImage:     own + " and use its operating system",
		cloud.FeatureDocker:    own + " and do not run in containers",
		cloud.FeatureDiskTier:  own + " and use its disk",
		cloud.FeatureNetTier:   own + " and use its network",
		cloud.FeatureLocalDisk: own + " and use its disk",
		cloud.FeatureStorage:   own + "; buckets cannot be mounted into them",
		cloud.FeatureCloneDisk: own + " and have no disks to clone",
	}}
}

// Check succeeds where nodes can have addresses of their own.
func (p *Provider) Check(context.Context) (cloud.Identity, error) {
	if runtime.GOOS == "windows" {
		return nil, &cloud.AuthError{Cloud: Name, Err: errors.New("nodes on this machine need Linux or macOS"),
			Fix: "point sky at a server on another machine: export SKYPILOT_API_SERVER_ENDPOINT=http://HOST:46580"}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return cloud.Identity{host}, nil
}

// Offers is this machine, free of charge.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) {
	return []cloud.Offer{p.offer()}, nil
}

// Prepare has nothing to do.
func (p *Provider) Prepare(context.Context, cloud.LaunchSpec) error { return nil }

// Launch makes the folders and switches the nodes on. A folder that a crash
// left half made is completed; nodes of an earlier cluster of the same name,
// which nobody owns any more, are removed first.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := validName(spec.ID.Name); err != nil {
		return nil, &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	if o := spec.Offer; o.InstanceType != "" && o.InstanceType != InstanceType || o.Region != "" {
		return nil, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("this machine is a %q in no region, not a %q in %q", InstanceType, o.InstanceType, o.Region)}
	}
	old, err := p.records(spec.ID.Name)
	if err != nil {
		return nil, err
	}
	for _, r := range old {
		if r.Hash != spec.ID.Hash {
			if err := p.remove(ctx, spec.ID.Name); err != nil {
				return nil, fmt.Errorf("removing what an earlier cluster %s left: %w", spec.ID.Name, err)
			}
			break
		}
	}
	unlock, err := lockRoot(ctx, p.root)
	if err != nil {
		return nil, p.diskError(spec, err)
	}
	defer unlock()
	taken, err := p.addresses()
	if err != nil {
		return nil, err
	}
	for rank := range spec.Nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := p.switchOn(spec, rank, taken); err != nil {
			return nil, p.diskError(spec, err)
		}
	}
	return p.Nodes(ctx, spec.ID)
}

// switchOn makes the node of that rank exist and be on.
func (p *Provider) switchOn(spec cloud.LaunchSpec, rank int, taken map[string]bool) error {
	dir := p.nodeDir(spec.ID.Name, rank)
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o700); err != nil {
		return err
	}
	r, err := readRecord(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	boot := p.bootID()
	if err == nil && r.On && r.BootID == boot {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		r = record{
			Installation: spec.ID.Installation, Cluster: spec.ID.Name, Hash: spec.ID.Hash,
			Rank: rank, IP: pickAddress(spec.ID, rank, taken), Created: time.Now(), Labels: spec.Labels,
		}
		taken[r.IP] = true
	}
	r.On, r.BootID, r.Reason = true, boot, ""
	return r.write(dir)
}

func (p *Provider) diskError(spec cloud.LaunchSpec, err error) error {
	if isDiskFull(err) {
		return &cloud.CapacityError{Place: spec.Offer.Place, Err: fmt.Errorf("the disk of %s is full: %w", p.root, err)}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &cloud.PermissionError{Place: spec.Offer.Place, Err: err}
	}
	return err
}

// Nodes reads what is on disk.
func (p *Provider) Nodes(_ context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	names := []string{id.Name}
	if id.Name == "" {
		var err error
		if names, err = p.clusters(); err != nil {
			return nil, err
		}
	}
	boot := p.bootID()
	var nodes []cloud.Node
	for _, name := range names {
		if validName(name) != nil {
			continue // no such cluster can exist
		}
		records, err := p.records(name)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if id.Hash != "" && r.Hash != id.Hash || id.Installation != "" && r.Installation != id.Installation {
				continue
			}
			nodes = append(nodes, r.node(p.nodeDir(name, r.Rank), boot))
		}
	}
	return nodes, nil
}

// Stop switches the nodes off: their processes end, their homes stay.
func (p *Provider) Stop(ctx context.Context, id cloud.ClusterID) error {
	if err := validName(id.Name); err != nil {
		return nil // no such cluster can exist
	}
	records, err := p.records(id.Name)
	if err != nil {
		return err
	}
	for _, r := range records {
		if id.Hash != "" && r.Hash != id.Hash {
			continue
		}
		// Off first: whoever looks meanwhile must not start it again.
		r.On = false
		if err := r.write(p.nodeDir(id.Name, r.Rank)); err != nil {
			return err
		}
	}
	return p.endProcesses(ctx, id.Name)
}

// Terminate ends the processes and removes the folders.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if err := validName(id.Name); err != nil {
		return nil // no such cluster can exist
	}
	if id.Hash != "" {
		nodes, err := p.Nodes(ctx, id)
		if err != nil {
			return err
		}
		all, err := p.records(id.Name)
		if err != nil {
			return err
		}
		if len(nodes) == 0 && len(all) > 0 {
			return nil // the name belongs to another incarnation by now
		}
	}
	return p.remove(ctx, id.Name)
}

func (p *Provider) remove(ctx context.Context, name string) error {
	records, err := p.records(name)
	if err != nil {
		return err
	}
	for _, r := range records {
		r.On = false
		err := r.write(p.nodeDir(name, r.Rank))
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody else removes it too
		}
		if err != nil && !isDiskFull(err) {
			return err
		}
	}
	if err := p.endProcesses(ctx, name); err != nil {
		return err
	}
	// Gone in one step, so that a crash leaves either the whole cluster or
	// only rubbish, which the next removal takes along.
	p.emptyTrash()
	trash := filepath.Join(p.root, fmt.Sprintf("%s%s-%d", trashPrefix, name, time.Now().UnixNano()))
	if err := os.Rename(filepath.Join(p.root, name), trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeTree(trash)
}

// trashPrefix marks folders that are being removed.
const trashPrefix = ".removed-"

// emptyTrash removes what earlier removals could not finish.
func (p *Provider) emptyTrash() {
	left, _ := filepath.Glob(filepath.Join(p.root, trashPrefix+"*"))
	for _, dir := range left {
		removeTree(dir)
	}
}

// endProcesses ends every process of the cluster's nodes.
func (p *Provider) endProcesses(ctx context.Context, name string) error {
	entries, err := os.ReadDir(filepath.Join(p.root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var dirs []string
	for _, e := range entries {
		dirs = append(dirs, filepath.Join(p.root, name, e.Name()))
	}
	return proc.End(ctx, func() []int {
		var pids []int
		for _, d := range dirs {
			pids = append(pids, proc.Marked(EnvNode, d)...)
		}
		return pids
	}, proc.Grace)
}

func (p *Provider) nodeDir(cluster string, rank int) string {
	return filepath.Join(p.root, cluster, fmt.Sprintf("node-%d", rank))
}

func (p *Provider) clusters() ([]string, error) {
	entries, err := os.ReadDir(p.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// records reads the nodes of one cluster in rank order. Folders without a
// node.json are no nodes: a crash left them before the machine existed.
func (p *Provider) records(cluster string) ([]record, error) {
	entries, err := os.ReadDir(filepath.Join(p.root, cluster))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []record
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "node-") {
			continue
		}
		r, err := readRecord(filepath.Join(p.root, cluster, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b record) int { return a.Rank - b.Rank })
	return out, nil
}

// maxName leaves room for what removing puts around the name of a folder.
const maxName = 200

// validName keeps cluster names from leaving the root.
func validName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("a cluster's name has at most %d bytes here, not %d", maxName, len(name))
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q cannot be a cluster's folder", name)
	}
	return nil
}
