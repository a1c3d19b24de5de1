package sshpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// intent notes on this side on which machines a cluster is or may be, before
// any of them is claimed. The records on the machines are the truth; the intent
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
}

func (i *intent) id() cloud.ClusterID {
	return cloud.ClusterID{Installation: i.Installation, Name: i.Cluster, Hash: i.Hash}
}

func newIntent(id cloud.ClusterID, hosts []*host) *intent {
	i := &intent{Installation: id.Installation, Cluster: id.Name, Hash: id.Hash}
	for _, h := range hosts {
		i.Hosts = append(i.Hosts, intended{h.pool, h.name, h.internal, h.reach})
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

func (p *Provider) intentFile(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return filepath.Join(p.o.Dir, fmt.Sprintf("%.60s-%s.json", id.Name, hex.EncodeToString(sum[:8])))
}

func (p *Provider) writeIntent(_ context.Context, i *intent) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.WriteSynced(p.intentFile(i.id()), append(b, '\n'), 0o600)
}

func (p *Provider) removeIntent(_ context.Context, id cloud.ClusterID) error {
	if err := os.Remove(p.intentFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// intents are those that match an id, whose empty parts match everything.
func (p *Provider) intents(_ context.Context, id cloud.ClusterID) ([]*intent, error) {
	entries, err := os.ReadDir(p.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []*intent
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(p.o.Dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		i := &intent{}
		if err := json.Unmarshal(b, i); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(p.o.Dir, e.Name()), err)
		}
		if (&record{Installation: i.Installation, Cluster: i.Cluster, Hash: i.Hash}).of(id) {
			out = append(out, i)
		}
	}
	return out, nil
}
