package sshpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
)

// Leases is where it is stored what clusters have of machines: the installation's
// database, which all its servers see.
type Leases interface {
	Set(ctx context.Context, name string, value []byte) error
	Delete(ctx context.Context, name string) error
	List(ctx context.Context, prefix string) (map[string][]byte, error)
}

// leasePrefix begins the names of leases.
const leasePrefix = "ssh-lease/"

// intent notes on this side on which machines a cluster is or may be, and with what
// share of each, before any of them is claimed. The records on the machines are the truth; the intent
// says where to look, even when the pools' file has changed or a machine does
// not answer.
type intent struct {
	Installation string     `json:"installation"`
	Cluster      string     `json:"cluster"`
	Hash         string     `json:"cluster_hash"`
	Hosts        []intended `json:"hosts"`
}

type intended struct {
	Pool     string      `json:"pool"`
	Name     string      `json:"name"`
	Internal string      `json:"internal_ip,omitempty"`
	Reach    cloud.Reach `json:"reach"`
	// Rank and Share are of the node there; a machine that was claimed in vain and is not
	// known to be without it may be listed too.
	Rank  int           `json:"rank"`
	Share *folder.Share `json:"share,omitempty"` // nil: the whole machine
}

func (i *intent) id() cloud.ClusterID {
	return cloud.ClusterID{Installation: i.Installation, Name: i.Cluster, Hash: i.Hash}
}

// leased is a machine for a rank, or a share of it.
type leased struct {
	*host
	rank  int
	share *folder.Share
}

func newIntent(id cloud.ClusterID, leases []leased) *intent {
	i := &intent{Installation: id.Installation, Cluster: id.Name, Hash: id.Hash}
	for _, l := range leases {
		i.Hosts = append(i.Hosts, intended{l.pool, l.name, l.internal, l.reach, l.rank, l.share})
	}
	return i
}

// hosts are the machines, as the pools' file has them now where it still does.
func (i *intent) hosts(pools []*pool) []*host {
	var out []*host
	for _, n := range i.Hosts {
		h := find(pools, n.Pool, n.Name)
		if h == nil {
			h = &host{pool: n.Pool, name: n.Name, internal: n.Internal, reach: n.Reach}
		}
		out = append(out, h)
	}
	return out
}

func find(pools []*pool, poolName, name string) *host {
	for _, p := range pools {
		if p.name != poolName {
			continue
		}
		for _, h := range p.hosts {
			if h.name == name {
				return h
			}
		}
	}
	return nil
}

func leaseName(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return fmt.Sprintf("%.60s-%s", id.Name, hex.EncodeToString(sum[:8]))
}

func (p *Provider) writeIntent(ctx context.Context, i *intent) error {
	b, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if err := p.o.Leases.Set(ctx, leasePrefix+leaseName(i.id()), b); err != nil {
		return fmt.Errorf("noting which machines the cluster gets: %w", err)
	}
	return nil
}

func (p *Provider) removeIntent(ctx context.Context, id cloud.ClusterID) error {
	err := os.Remove(p.earlierFile(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.o.Leases.Delete(ctx, leasePrefix+leaseName(id))
}

// earlierFile is where earlier versions kept the intent.
func (p *Provider) earlierFile(id cloud.ClusterID) string {
	return filepath.Join(p.o.Dir, leaseName(id)+".json")
}

// intents are those that match an id, whose empty parts match everything.
func (p *Provider) intents(ctx context.Context, id cloud.ClusterID) ([]*intent, error) {
	texts, err := p.o.Leases.List(ctx, leasePrefix)
	if err != nil {
		return nil, fmt.Errorf("reading which machines clusters have: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(p.o.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := leasePrefix + strings.TrimSuffix(filepath.Base(file), ".json")
		if texts[name] != nil { // written again since
			continue
		}
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		texts[name] = b
	}
	var out []*intent
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		i := &intent{}
		if err := json.Unmarshal(texts[name], i); err != nil {
			return nil, fmt.Errorf("the record %s is damaged: %w", name, err)
		}
		if (&record{Installation: i.Installation, Cluster: i.Cluster, Hash: i.Hash}).of(id) {
			out = append(out, i)
		}
	}
	return out, nil
}
