// Package local rents "machines" on the machine that sky runs on: each node is
// a folder with a home of its own, a loopback address of its own, and whatever
// processes run in it. It is what sky uses when nothing else is set up, and the
// shortest way through the same code that rents from a cloud.
//
// What exists is what is on disk, below one root folder:
//
//	<root>/<folder>/node-<rank>/node.json   the machine: owner, address, on or off
//	<root>/<folder>/node-<rank>/home/       its disk
//
// The folder is the cluster's name. A cluster whose name another one's nodes have
// already gets "<name>+<digest>": whose a folder is, only its records say.
//
// A node's processes carry the node's folder in the environment variable
// [EnvNode]; that is how they are found, whoever started them. A machine that
// was on when the computer went down is off afterwards.
package local

import (
	"context"
	"crypto/sha256"
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
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
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
	f := cloud.Features{MaxNameLength: maxName, OnServer: true, Lacks: map[cloud.Feature]string{
		cloud.FeatureSpot:      own + ", which nobody sells as spot",
		cloud.FeatureImage:     own + " and use its operating system",
		cloud.FeatureDocker:    own + " and do not run in containers",
		cloud.FeatureDiskTier:  own + " and use its disk",
		cloud.FeatureNetTier:   own + " and use its network",
		cloud.FeatureLocalDisk: own + " and use its disk",
		cloud.FeatureCloneDisk: own + " and have no disks to clone",
	}}
	if runtime.GOOS != "linux" {
		f.Lacks[cloud.FeatureStorage] = own + ", and buckets are mounted on Linux only (mode: COPY works)"
	}
	return f
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
// left half made is completed; nodes of another cluster are never touched.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := validName(spec.ID.Name); err != nil {
		return nil, &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	if o := spec.Offer; o.InstanceType != "" && o.InstanceType != InstanceType || o.Region != "" {
		return nil, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("this machine is a %q in no region, not a %q in %q", InstanceType, o.InstanceType, o.Region)}
	}
	unlock, err := lockRoot(ctx, p.root)
	if err != nil {
		return nil, p.diskError(spec, err)
	}
	defer unlock()
	folder, err := p.folderFor(spec.ID)
	if err != nil {
		return nil, err
	}
	taken, err := p.addresses()
	if err != nil {
		return nil, err
	}
	for rank := range spec.Nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := p.switchOn(spec, folder, rank, taken); err != nil {
			return nil, p.diskError(spec, err)
		}
	}
	return p.Nodes(ctx, spec.ID)
}

// switchOn makes the node of that rank exist and be on.
func (p *Provider) switchOn(spec cloud.LaunchSpec, folder string, rank int, taken map[string]bool) error {
	dir := p.nodeDir(folder, rank)
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
	folders, err := p.foldersOf(id)
	if err != nil {
		return nil, err
	}
	boot := p.bootID()
	var nodes []cloud.Node
	for _, f := range folders {
		for _, r := range f.records {
			nodes = append(nodes, r.node(p.nodeDir(f.name, r.Rank), boot))
		}
	}
	return nodes, nil
}

// Stop switches the nodes off: their processes end, their homes stay.
func (p *Provider) Stop(ctx context.Context, id cloud.ClusterID) error {
	if id.Name == "" {
		return nil
	}
	folders, err := p.foldersOf(id)
	if err != nil {
		return err
	}
	for _, f := range folders {
		for _, r := range f.records {
			// Off first: whoever looks meanwhile must not start it again.
			r.On = false
			if err := r.write(p.nodeDir(f.name, r.Rank)); err != nil {
				return err
			}
		}
		if err := p.endProcesses(ctx, f.name); err != nil {
			return err
		}
	}
	return nil
}

// Terminate ends the processes and removes the folders.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if validName(id.Name) != nil {
		return nil // no such cluster can exist
	}
	folders, err := p.foldersOf(id)
	if err != nil {
		return err
	}
	for _, f := range folders {
		for _, r := range f.records {
			r.On = false
			err := r.write(p.nodeDir(f.name, r.Rank))
			if errors.Is(err, fs.ErrNotExist) {
				continue // somebody else removes it too
			}
			if err != nil && !isDiskFull(err) {
				return err
			}
		}
		if err := p.remove(ctx, f.name, id); err != nil {
			return err
		}
	}
	// What a crash left before there was a node.
	for _, name := range []string{id.Name, spareFolder(id)} {
		if _, err := os.Lstat(filepath.Join(p.root, name)); err == nil {
			if err := p.remove(ctx, name, id); err != nil {
				return err
			}
		}
	}
	p.emptyTrash() // a crash may have cut off the removal of this very cluster
	return nil
}

// remove ends what runs in a folder and removes it, unless it has nodes of another
// cluster than id.
func (p *Provider) remove(ctx context.Context, name string, id cloud.ClusterID) error {
	records, err := p.records(name)
	foreign := func(r record) bool { return !r.is(id) }
	if err != nil || slices.ContainsFunc(records, foreign) {
		return err
	}
	if len(records) > 0 { // these may take time to end
		if err := p.endProcesses(ctx, name); err != nil {
			return err
		}
	}
	trash, err := p.discard(ctx, name, foreign)
	if err != nil || trash == "" {
		return err
	}
	return mountpoints.RemoveAll(trash)
}

// discard renames a folder to where it is rubbish, "" if it has nodes that are
// foreign by now.
func (p *Provider) discard(ctx context.Context, name string, foreign func(record) bool) (trash string, err error) {
	unlock, err := lockRoot(ctx, p.root) // nobody makes a node in it meanwhile
	if err != nil {
		return "", err
	}
	defer unlock()
	records, err := p.records(name)
	if err != nil || slices.ContainsFunc(records, foreign) {
		return "", err
	}
	if err := p.endProcesses(ctx, name); err != nil {
		return "", err
	}
	// Gone in one step, so that a crash leaves either the whole cluster or
	// only rubbish, which the next removal takes along.
	p.emptyTrash()
	trash = filepath.Join(p.root, fmt.Sprintf("%s%s-%d", trashPrefix, name, time.Now().UnixNano()))
	if err := os.Rename(filepath.Join(p.root, name), trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return trash, nil
}

// trashPrefix marks folders that are being removed.
const trashPrefix = ".removed-"

// emptyTrash removes what earlier removals could not finish.
func (p *Provider) emptyTrash() {
	left, _ := filepath.Glob(filepath.Join(p.root, trashPrefix+"*"))
	for _, dir := range left {
		mountpoints.RemoveAll(dir)
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

func (p *Provider) nodeDir(folder string, rank int) string {
	return filepath.Join(p.root, folder, fmt.Sprintf("node-%d", rank))
}

// folder is one that has nodes, with their records in rank order.
type folder struct {
	name    string
	records []record
}

// spareSeparator is in no name of a cluster.
const spareSeparator = "+"

// spareFolder is the cluster's folder if another cluster has the one of its name.
func spareFolder(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Hash))
	return fmt.Sprintf("%s%s%x", id.Name, spareSeparator, sum[:8])
}

// is reports whether a node belongs to the cluster; what id lacks may be anything.
func (r record) is(id cloud.ClusterID) bool {
	return (id.Name == "" || r.Cluster == id.Name) && (id.Hash == "" || r.Hash == id.Hash) && (id.Installation == "" || r.Installation == id.Installation)
}

// folderFor chooses the folder of a cluster that is about to be launched: the one
// that it has, or the first that nobody else's nodes are in.
func (p *Provider) folderFor(id cloud.ClusterID) (string, error) {
	have, err := p.foldersOf(id)
	if err != nil {
		return "", err
	}
	if len(have) > 0 {
		return have[0].name, nil
	}
	for _, name := range []string{id.Name, spareFolder(id)} {
		records, err := p.records(name)
		if err != nil {
			return "", err
		}
		if len(records) == 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s and %s are folders of other clusters: remove those, or choose another name", filepath.Join(p.root, id.Name), spareFolder(id))
}

// foldersOf are the folders with nodes of the clusters that id is about. A folder
// has nodes of one cluster only.
func (p *Provider) foldersOf(id cloud.ClusterID) ([]folder, error) {
	names, err := p.clusters()
	if err != nil {
		return nil, err
	}
	var out []folder
	for _, name := range names {
		if id.Name != "" && name != id.Name && !strings.HasPrefix(name, id.Name+spareSeparator) {
			continue
		}
		records, err := p.records(name)
		if err != nil {
			return nil, err
		}
		records = slices.DeleteFunc(records, func(r record) bool { return !r.is(id) })
		if len(records) > 0 {
			out = append(out, folder{name, records})
		}
	}
	return out, nil
}

// clusters lists the folders of clusters.
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

// maxName is the longest name of a cluster. It leaves room for what a spare folder's
// name and removing put around it.
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
