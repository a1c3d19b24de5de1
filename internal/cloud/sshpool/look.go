package sshpool

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// record says whose a machine is. It is one line of JSON in the node's folder.
type record struct {
	Installation string    `json:"installation"`
	Cluster      string    `json:"cluster"`
	Hash         string    `json:"cluster_hash"`
	Rank         int       `json:"rank"`
	Created      time.Time `json:"created"`
}

func (r *record) of(id cloud.ClusterID) bool {
	return r != nil && (id.Installation == "" || r.Installation == id.Installation) &&
		(id.Name == "" || r.Cluster == id.Name) && (id.Hash == "" || r.Hash == id.Hash)
}

// seen is what a look at a machine found.
type seen struct {
	host    *host
	err     error // nothing else counts then
	dir     string
	address string // as the machine knows it
	cpus    float64
	memory  float64 // KiB
	gpus    string  // what nvidia-smi lists
	record  *record // nil: the machine is free
	raw     string  // the record as it is there
	leaving bool    // it is being given back
	shape   shape
}

func (s *seen) node() cloud.Node {
	h := s.host
	n := cloud.Node{
		ID: fmt.Sprintf("%s-%.8s", h.id(), s.record.Hash), Cluster: s.record.Cluster, Hash: s.record.Hash, Rank: s.record.Rank,
		State: cloud.NodeRunning, Place: cloud.Place{Cloud: Name, Region: region(h.pool)},
		InternalIP: or(h.internal, s.address), ExternalIP: h.reach.Host,
		Reach: h.reach, Created: s.record.Created,
	}
	n.Reach.Home = s.dir + "/" + folder.Home
	if s.leaving {
		n.State, n.Reason = cloud.NodeGone, "it gave itself back"
	}
	return n
}

// where finds the node's folder. Machines may share a home folder; their names
// tell them apart.
const where = `d=$HOME/.sky/nodes/$(uname -n)
`

// tell prints what there is.
const tell = `echo "dir=$d"
echo "connection=$SSH_CONNECTION"
for f in node leaving; do [ -f "$d/$f.json" ] && echo "$f=$(cat "$d/$f.json")"; done
`

const hardware = `c=$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null)
echo "cpus=$c"
while read -r k v u; do [ "$k" = MemTotal: ] && echo "memory=$v"; done 2>/dev/null </proc/meminfo
m=$(sysctl -n hw.memsize 2>/dev/null) && [ -n "$m" ] && echo "memory=$((m / 1024))"
command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null </dev/null | while read -r g; do echo "gpu=$g"; done
`

// lookTimeout bounds one look at one machine.
const lookTimeout = 30 * time.Second

// look looks at one machine; whatever goes wrong is in err.
func (p *Provider) look(ctx context.Context, h *host) *seen {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	known, ok := p.facts.get(h)
	script := where + tell
	if !ok {
		script += hardware
	}
	s := p.ask(ctx, h, script)
	switch {
	case s.err != nil:
	case ok:
		s.shape = known
	default:
		s.shape = newShape(s.cpus, s.memory, cloud.NVIDIAAccelerators(s.gpus))
		if s.cpus > 0 {
			p.facts.put(h, s.shape)
		}
	}
	return s
}

// ask runs a script that tells about the machine at its end.
func (p *Provider) ask(ctx context.Context, h *host, script string) *seen {
	t, err := sshconn.FromReach(h.reach)
	if err != nil {
		return &seen{host: h, err: err}
	}
	out, err := p.o.SSH.Script(ctx, t, "umask 077\n"+script+"exit 0\n")
	if err != nil {
		return &seen{host: h, err: err}
	}
	return read(h, string(out))
}

func read(h *host, out string) *seen {
	s := &seen{host: h}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "dir":
			s.dir = value
		case "connection":
			if f := strings.Fields(value); len(f) == 4 {
				s.address = f[2]
			}
		case "cpus":
			s.cpus, _ = strconv.ParseFloat(value, 64)
		case "memory":
			s.memory, _ = strconv.ParseFloat(value, 64)
		case "gpu":
			s.gpus += value + "\n"
		case "node", "leaving":
			r := &record{}
			if err := json.Unmarshal([]byte(value), r); err != nil {
				s.err = fmt.Errorf("%s/%s.json on %s is damaged (%v); if nothing of sky runs there, remove that folder", s.dir, key, h.name, err)
				return s
			}
			s.record, s.raw, s.leaving = r, value, key == "leaving"
		}
	}
	if s.dir == "" {
		s.err = &sshconn.NoShellError{Host: h.name, Said: strings.TrimSpace(out)}
	}
	if s.address == "" {
		s.address = h.reach.Host
	}
	return s
}
