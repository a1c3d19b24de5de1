// Package model is a whole cloud as a pure data structure: regions, zones,
// capacity, quotas, prices, instances that boot and halt in their own time, spot
// instances that are taken back, and a ledger of what was billed.
//
// Nothing runs in it. What happens by itself (a boot ends, a price changes) is
// an event in a queue, and every call first lets happen what is due by the
// clock. So the model costs nothing while nobody asks, works under virtual time,
// and with the same seed and the same calls is always the same.
//
// An [Account] is the customer's face, [fluffyapi.API]; faults ([Fault]) happen
// between the two. The methods of [Cloud] are the operator's face.
package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Cloud is one cloud. Its methods may be called concurrently.
type Cloud struct {
	cfg Config

	mu    sync.Mutex
	s     state
	src   *rand.PCG
	rng   *rand.Rand
	names map[string]string  // account/name → id, unless terminated
	byTag tagIndex           // instances' ids
	walls tagIndex           // firewalls' keys
	used  map[string]int     // zone/type → instances that hold capacity
	quota map[string]int     // account/region/family → units in use
	rate  map[string]*bucket // by account
	gates struct {
		faults []*Fault
		change chan struct{}
	} // see faults.go
}

// state is what survives: everything else follows from it.
type state struct {
	Now       time.Time                     `json:"now"` // up to here everything due has happened
	Seq       uint64                        `json:"seq"`
	Random    []byte                        `json:"random"`
	Skew      time.Duration                 `json:"skew"` // of the times the cloud tells
	Instances map[string]*instance          `json:"instances"`
	Tokens    map[string]string             `json:"tokens"` // account/token → id
	Firewalls map[string]fluffyapi.Firewall `json:"firewalls"`
	Images    map[string]*image             `json:"images,omitempty"`
	Capacity  map[string]int                `json:"capacity"` // zone/type; absent: the default
	Prices    map[string]float64            `json:"prices"`   // zone/type/market; absent: by the type
	Limits    map[string]int                `json:"limits"`   // account/region/family; absent: none
	Queue     queue                         `json:"queue"`
	Ledger    []Bill                        `json:"ledger"` // closed bills
	History   []Change                      `json:"history,omitempty"`
}

// instance is a machine with what its owner does not see.
type instance struct {
	fluffyapi.Instance
	Seq     uint64            `json:"seq"`
	Account string            `json:"account"`
	Token   string            `json:"token"`
	Request string            `json:"request"` // the request that made it, to tell another one with its token
	SSHKey  string            `json:"ssh_key"`
	BootAt  time.Time         `json:"boot_at"` // not before
	Epoch   int               `json:"epoch"`   // counts changes of state; events of earlier ones are void
	Open    *Bill             `json:"open,omitempty"`
	Disk    map[string]string `json:"disk,omitempty"`
	Hidden  hidden            `json:"-"` // from lists, as yet
	Stale   int               `json:"-"` // lists that show it running although it is ending
}

// New returns an empty cloud.
func New(cfg Config) (*Cloud, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.ID == nil {
		cfg.ID = func(seq uint64) string { return fmt.Sprintf("fc-%08x", seq) }
	}
	if cfg.Linger == 0 {
		cfg.Linger = time.Hour
	}
	if cfg.PageSize == 0 {
		cfg.PageSize = 100
	}
	c := &Cloud{cfg: cfg, src: rand.NewPCG(cfg.Seed, 0x666c75666679)}
	c.rng = rand.New(c.src)
	c.s = state{
		Now: cfg.Now(), Instances: map[string]*instance{}, Tokens: map[string]string{}, Firewalls: map[string]fluffyapi.Firewall{}, Images: map[string]*image{},
		Capacity: map[string]int{}, Prices: map[string]float64{}, Limits: map[string]int{},
	}
	c.gates.change = make(chan struct{})
	c.index()
	return c, nil
}

// Restore returns the cloud that a snapshot was taken of. What was due in the
// meantime happens now.
func Restore(cfg Config, snapshot []byte) (*Cloud, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(snapshot, &c.s); err != nil {
		return nil, fmt.Errorf("the snapshot is damaged: %w", err)
	}
	if c.s.Images == nil { // a snapshot of an earlier build
		c.s.Images = map[string]*image{}
	}
	if err := c.src.UnmarshalBinary(c.s.Random); err != nil {
		return nil, fmt.Errorf("the snapshot is damaged: %w", err)
	}
	c.index()
	return c, nil
}

// Snapshot is everything needed to go on later.
func (c *Cloud) Snapshot() ([]byte, error) {
	c.lock()
	defer c.mu.Unlock()
	return c.snapshot()
}

func (c *Cloud) snapshot() ([]byte, error) {
	random, err := c.src.MarshalBinary()
	if err != nil {
		return nil, err
	}
	c.s.Random = random
	return json.Marshal(&c.s)
}

// commit keeps what has changed.
func (c *Cloud) commit() error {
	if c.cfg.Commit == nil {
		return nil
	}
	b, err := c.snapshot()
	if err == nil {
		err = c.cfg.Commit(b)
	}
	if err != nil {
		return fluffyapi.Errorf(fluffyapi.Internal, "keeping the change: %v", err)
	}
	return nil
}

// lock takes the cloud and lets happen what is due.
func (c *Cloud) lock() {
	c.mu.Lock()
	c.advance(c.cfg.Now())
}

// index rebuilds what follows from the state.
func (c *Cloud) index() {
	c.names, c.byTag, c.walls = map[string]string{}, tagIndex{}, tagIndex{}
	c.used, c.quota, c.rate = map[string]int{}, map[string]int{}, map[string]*bucket{}
	for key, f := range c.s.Firewalls {
		c.walls.add(strings.TrimSuffix(key, "/"+f.Name), f.Tags, key)
	}
	for _, i := range c.s.Instances {
		c.addToIndex(i)
		if holdsCapacity(i.State) {
			c.hold(i, 1)
		}
	}
}

func (c *Cloud) addToIndex(i *instance) {
	if i.State != fluffyapi.Terminated {
		c.names[i.Account+"/"+i.Name] = i.ID
	}
	c.byTag.add(i.Account, i.Tags, i.ID)
	c.byTag.add(i.Account, map[string]string{wall: i.Firewall}, i.ID)
}

func (c *Cloud) dropFromIndex(i *instance) {
	c.byTag.drop(i.Account, i.Tags, i.ID)
	c.byTag.drop(i.Account, map[string]string{wall: i.Firewall}, i.ID)
}

// wall is the tag, in the index alone, for the firewall of an instance.
const wall = "\x00firewall"

// tagIndex finds by an account's tag what carries it.
type tagIndex map[string]map[string]struct{}

func (x tagIndex) add(account string, tags map[string]string, id string) {
	for k, v := range tags {
		key := tagKey(account, k, v)
		if x[key] == nil {
			x[key] = map[string]struct{}{}
		}
		x[key][id] = struct{}{}
	}
}

func (x tagIndex) drop(account string, tags map[string]string, id string) {
	for k, v := range tags {
		key := tagKey(account, k, v)
		delete(x[key], id)
		if len(x[key]) == 0 {
			delete(x, key)
		}
	}
}

// fewest is the smallest set that holds everything with all the tags; false if
// there are no tags to go by.
func (x tagIndex) fewest(account string, tags map[string]string) (ids map[string]struct{}, ok bool) {
	for k, v := range tags {
		if of := x[tagKey(account, k, v)]; !ok || len(of) < len(ids) {
			ids, ok = of, true
		}
	}
	return ids, ok
}

func tagKey(account, key, value string) string { return account + "\x00" + key + "\x00" + value }

// inOrder lists the instances as they were created. What depends on an order
// must not depend on a map's.
func (c *Cloud) inOrder() []*instance {
	return slices.SortedFunc(maps.Values(c.s.Instances), func(a, b *instance) int { return cmp.Compare(a.Seq, b.Seq) })
}

// draw picks a duration.
func (c *Cloud) draw(d Delay) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + time.Duration(c.rng.Int64N(int64(d.Max-d.Min)))
}
