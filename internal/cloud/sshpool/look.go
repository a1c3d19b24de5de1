package sshpool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// record says who has a machine, or a share of it. It is one line of JSON in the node's folder.
type record struct {
	Installation string        `json:"installation"`
	Cluster      string        `json:"cluster"`
	Hash         string        `json:"cluster_hash"`
	Rank         int           `json:"rank"`
	Created      time.Time     `json:"created"`
	Share        *folder.Share `json:"share,omitempty"` // nil: the whole machine
	// RunAs is the account that has the node, if that is not the login, and Owner the
	// user of sky whose it is.
	RunAs     string `json:"run_as,omitempty"`
	Owner     string `json:"owner,omitempty"`
	OwnerName string `json:"owner_name,omitempty"`
}

func (r *record) of(id cloud.ClusterID) bool {
	return r != nil && (id.Installation == "" || r.Installation == id.Installation) &&
		(id.Name == "" || r.Cluster == id.Name) && (id.Hash == "" || r.Hash == id.Hash)
}

// held is one node's folder on a machine.
type held struct {
	dir     string
	record  *record
	raw     string // the record as it is there
	leaving bool   // it is being given back
	ready   bool   // it was claimed for good: see [Provider.claim]
	// node is the folder that has the node's home. It is dir, or with record.RunAs a folder
	// of that account's; "": there is none.
	node    string
	problem error // why that account could not be asked; nil: it was
}

// seen is what a look at a machine found.
type seen struct {
	host    *host
	err     error  // nothing else counts then
	dir     string // where the folder of a node is that has the whole machine
	address string // as the machine knows it
	cpus    float64
	memory  float64 // KiB
	gpus    string  // what nvidia-smi lists
	limits  bool
	held    []held
	size    size
}

// of are the nodes of a cluster, or of all that match.
func (s *seen) of(id cloud.ClusterID) []held {
	return slices.DeleteFunc(slices.Clone(s.held), func(h held) bool { return !h.record.of(id) })
}

// room is what no cluster has of the machine. With settled only what was claimed for
// good counts: who else is about to claim may have to withdraw.
func (s *seen) room(settled bool) room {
	var taken []*folder.Share
	for _, h := range s.held {
		if h.ready || h.leaving || !settled {
			taken = append(taken, h.record.Share)
		}
	}
	return roomOf(s.size, taken)
}

func (s *seen) node(r held) cloud.Node {
	h := s.host
	n := cloud.Node{
		ID: fmt.Sprintf("%s-%.8s", h.id(), r.record.Hash), Cluster: r.record.Cluster, Hash: r.record.Hash, Rank: r.record.Rank,
		State: cloud.NodeRunning, Place: cloud.Place{Cloud: Name, Region: region(h.pool)},
		InternalIP: cmp.Or(h.internal, s.address), ExternalIP: h.reach.Host,
		Reach: h.reach, Created: r.record.Created,
	}
	n.Reach.Home, n.Reach.RunAs = cmp.Or(r.node, r.dir)+"/"+folder.Home, r.record.RunAs
	if r.record.Owner != "" {
		n.About = &cloud.About{UserID: r.record.Owner, UserName: r.record.OwnerName}
	}
	if r.leaving {
		n.State, n.Reason = cloud.NodeGone, "it gave itself back"
	}
	return n
}

// where finds the folders of nodes. Machines may share a home folder; their names
// tell them apart. A node that earlier versions made is the folder $d itself; the others are
// below $d.d, so that those versions, which may use the machine too, never remove them.
const where = `d=$HOME/.sky/nodes/$(uname -n)
`

// tell prints what there is.
const tell = `echo "dir=$d"
echo "connection=$SSH_CONNECTION"
for e in "$d" "$d".d/*; do
  for f in node leaving; do
    [ -f "$e/$f.json" ] || continue
    r=$(cat "$e/$f.json" 2>/dev/null)
    [ -n "$r" ] || [ -f "$e/$f.json" ] || continue # it has just gone
    echo "at=$e"
    [ -d "$e/home" ] && echo "ready=1"
    echo "$f=$r"
  done
done
`

const hardware = `c=$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null)
echo "cpus=$c"
while read -r k v u; do [ "$k" = MemTotal: ] && echo "memory=$v"; done 2>/dev/null </proc/meminfo
m=$(sysctl -n hw.memsize 2>/dev/null) && [ -n "$m" ] && echo "memory=$((m / 1024))"
command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null </dev/null | while read -r g; do echo "gpu=$g"; done
[ -d /run/systemd/system ] && command -v busctl >/dev/null 2>&1 && { [ "$(id -u)" = 0 ] || sudo -n true; } >/dev/null 2>&1 </dev/null && echo "limits=1"
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
		s.size = known
	default:
		s.size = newSize(s.cpus, s.memory, s.gpus)
		s.size.limits = s.limits && !h.runAs.submitter // agents of accounts cannot set them
		if s.cpus > 0 {
			p.facts.put(h, s.size)
		}
	}
	return s
}

// ask runs a script that tells about the machine at its end, as the login, and then asks
// the accounts that have nodes there.
func (p *Provider) ask(ctx context.Context, h *host, script string) *seen {
	s := p.askAs(ctx, h, "", script)
	if s.err == nil {
		p.askAccounts(ctx, s)
	}
	return s
}

// askAs runs a script that tells about the folders of one account at its end; "" is the login.
func (p *Provider) askAs(ctx context.Context, h *host, account, script string) *seen {
	out, err := p.run(ctx, h, account, "umask 077\n"+script+"exit 0\n")
	if err != nil {
		return &seen{host: h, err: err}
	}
	return read(h, string(out))
}

func (p *Provider) run(ctx context.Context, h *host, account, script string) ([]byte, error) {
	reach := h.reach
	reach.RunAs = account
	t, err := sshconn.FromReach(reach)
	if err != nil {
		return nil, err
	}
	return p.o.SSH.Script(ctx, t, script)
}

func read(h *host, out string) *seen {
	s := &seen{host: h}
	var at held
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
		case "limits":
			s.limits = value == "1"
		case "at":
			at = held{dir: value, node: value}
		case "ready":
			at.ready = true
		case "node", "leaving":
			r := &record{}
			if err := json.Unmarshal([]byte(value), r); err != nil {
				s.err = fmt.Errorf("%s/%s.json on %s is damaged (%v); if nothing of sky runs there, remove that folder", at.dir, key, h.name, err)
				return s
			}
			at.record, at.raw, at.leaving = r, value, key == "leaving"
			if n := len(s.held); n > 0 && s.held[n-1].dir == at.dir { // it has both: it is leaving
				s.held = s.held[:n-1]
			}
			s.held = append(s.held, at)
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
