package local

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// record is node.json.
type record struct {
	Installation string            `json:"installation"`
	Cluster      string            `json:"cluster"`
	Hash         string            `json:"cluster_hash"`
	Rank         int               `json:"rank"`
	IP           string            `json:"ip"`
	On           bool              `json:"on"`
	BootID       string            `json:"boot_id"` // of the boot in which it was switched on
	Created      time.Time         `json:"created"`
	Labels       map[string]string `json:"labels,omitempty"`
	Reason       string            `json:"reason,omitempty"` // why it is off
}

const recordFile = "node.json"

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, recordFile), err)
	}
	return r, nil
}

// write replaces node.json atomically and durably: it is the only witness of
// the node's existence.
func (r record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.WriteSynced(filepath.Join(dir, recordFile), append(b, '\n'), 0o600)
}

func (r record) node(dir, boot string) cloud.Node {
	n := cloud.Node{
		ID:      fmt.Sprintf("%s-%s-%d", r.Cluster, r.Hash, r.Rank),
		Cluster: r.Cluster, Hash: r.Hash, Rank: r.Rank,
		State:      cloud.NodeStopped,
		Place:      cloud.Place{Cloud: Name},
		InternalIP: r.IP, ExternalIP: r.IP,
		Reach:   cloud.Reach{Method: "local", Home: filepath.Join(dir, "home"), Host: r.IP},
		Created: r.Created,
		Reason:  r.Reason,
	}
	switch {
	case r.On && r.BootID == boot:
		n.State = cloud.NodeRunning
	case r.On:
		n.Reason = "this machine was restarted"
	}
	return n
}

// addresses are those that nodes below the root have.
func (p *Provider) addresses() (map[string]bool, error) {
	names, err := p.clusters()
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, name := range names {
		records, err := p.records(name)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			taken[r.IP] = true
		}
	}
	return taken, nil
}

// pickAddress gives a node a loopback address: the same one for the same node
// if it is free, so that two installations on one machine seldom meet.
func pickAddress(id cloud.ClusterID, rank int, taken map[string]bool) string {
	for try := uint32(0); ; try++ {
		h := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d/%d", id.Installation, id.Name, id.Hash, rank, try))
		n := binary.BigEndian.Uint32(h[:])
		// 127.16.0.1 to 127.239.255.254: away from what people use by hand.
		ip := net.IPv4(127, byte(16+n>>24%224), byte(n>>16), byte(1+n%254)).String()
		if !taken[ip] && usable(ip) {
			return ip
		}
		if try == 1000 {
			return ip // no loopback address can be bound; the agent will say why
		}
	}
}

// usable reports whether an address can be listened on.
func usable(ip string) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
