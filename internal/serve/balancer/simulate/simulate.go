// Package simulate runs conversations with replicas that serve a language model, in
// virtual time, to compare how a load balancer chooses among them.
//
// A replica has slots and a cache of prompts' prefixes. A request takes a slot, or
// waits for one; it takes time for that part of its prompt which is not in the
// cache, and for its answer. The next turn of its conversation comes some time after
// the answer and has everything before it as its prefix.
package simulate

import (
	"container/heap"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
	"github.com/skypilot-go/sky/internal/serve/balancer/prefix"
)

// Config of a simulation. Sizes are in blocks of prompts.
type Config struct {
	Seed     uint64
	Policy   func(r *Router, blocks []uint64) int // index of the replica
	Replicas int
	Slots    int           // requests at once, of each replica
	Cache    int           // of each replica
	Prefill  time.Duration // of a block that is not in the cache
	Decode   time.Duration // of an answer, on average

	Conversations int
	Rate          float64       // of conversations that begin, a second
	Turns         int           // of a conversation, on average
	Think         time.Duration // between an answer and the next turn, on average
	Systems       int           // how many different system prompts there are
	SystemBlocks  int
	TurnBlocks    int // that a turn and its answer add
}

// Default is a service of 8 replicas at about 60% of what they can do.
func Default(seed uint64) Config {
	return Config{Seed: seed, Replicas: 8, Slots: 16, Cache: 2000, Prefill: 8 * time.Millisecond, Decode: 2 * time.Second,
		Conversations: 3000, Rate: 7, Turns: 6, Think: 8 * time.Second, Systems: 1000, SystemBlocks: 30, TurnBlocks: 6}
}

// Result of a simulation.
type Result struct {
	Requests int
	// HitRate is the share of prompts' blocks that were in the cache.
	HitRate float64
	// P50 and P99 are of the time until the answer begins.
	P50, P99 time.Duration
}

// A Router is what a policy may look at.
type Router struct {
	Tree       *prefix.Tree
	Candidates []policy.Candidate
	Rand       *rand.Rand
	ids, match []int
}

// LeastLoad chooses as the policy least_load does.
func LeastLoad(r *Router, _ []uint64) int { return policy.LeastLoad(r.Candidates, r.Rand.Uint64()) }

// PrefixAware chooses as the policy prefix_aware does, with a bound.
func PrefixAware(b policy.Bound) func(r *Router, blocks []uint64) int {
	return func(r *Router, blocks []uint64) int {
		r.Tree.Match(blocks, r.ids, r.match)
		i := policy.Prefix(r.Candidates, r.match, b, r.Rand.Uint64())
		r.Tree.Add(blocks, r.Candidates[i].ID)
		return i
	}
}

type event struct {
	at  time.Duration
	seq int
	do  func(now time.Duration)
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// replica is a server of a model.
type replica struct {
	busy    int
	waiting []func(now time.Duration)
	cache   *prefix.Tree // of one replica, id 0
}

// Run runs a simulation to its end.
func Run(c Config) Result {
	rnd := rand.New(rand.NewPCG(c.Seed, c.Seed))
	router := &Router{Tree: prefix.NewTree(c.Cache), Rand: rnd, Candidates: make([]policy.Candidate, c.Replicas), ids: make([]int, c.Replicas), match: make([]int, c.Replicas)}
	replicas := make([]*replica, c.Replicas)
	for i := range replicas {
		replicas[i] = &replica{cache: prefix.NewTree(c.Cache)}
		router.Candidates[i] = policy.Candidate{ID: i, Speed: 1}
		router.ids[i] = i
	}
	var queue events
	seq := 0
	at := func(t time.Duration, do func(now time.Duration)) {
		seq++
		heap.Push(&queue, event{t, seq, do})
	}
	exp := func(mean time.Duration) time.Duration { return time.Duration(rnd.ExpFloat64() * float64(mean)) }
	system := rand.NewZipf(rnd, 1.2, 1, uint64(c.Systems-1))
	blockOf := func(kind, n, i int) []byte {
		b := make([]byte, prefix.BlockBytes)
		binary.LittleEndian.PutUint64(b, uint64(kind)<<56|uint64(n)<<24|uint64(i))
		return b
	}

	var times []time.Duration
	var blocksSeen, blocksHit int
	var turn func(prompt []byte, id, n, left int) func(now time.Duration)
	turn = func(prompt []byte, id, n, left int) func(now time.Duration) {
		return func(now time.Duration) {
			blocks := prefix.Blocks(nil, nil, prompt)
			k := c.Policy(router, blocks)
			r := replicas[k]
			router.Candidates[k].Load++
			start := func(now2 time.Duration) {
				r.busy++
				var hit [1]int
				r.cache.Match(blocks, []int{0}, hit[:])
				r.cache.Add(blocks, 0)
				blocksSeen += len(blocks)
				blocksHit += hit[0]
				first := now2 + time.Duration(len(blocks)-hit[0])*c.Prefill
				times = append(times, first-now)
				at(first+exp(c.Decode), func(end time.Duration) {
					r.busy--
					router.Candidates[k].Load--
					if len(r.waiting) > 0 {
						next := r.waiting[0]
						r.waiting = r.waiting[1:]
						next(end)
					}
					if left > 0 {
						longer := slices.Clone(prompt)
						for i := range c.TurnBlocks {
							longer = append(longer, blockOf(2, id, n*c.TurnBlocks+i)...)
						}
						at(end+exp(c.Think), turn(longer, id, n+1, left-1))
					}
				})
			}
			if r.busy < c.Slots {
				start(now)
			} else {
				r.waiting = append(r.waiting, start)
			}
		}
	}
	begin := time.Duration(0)
	for id := range c.Conversations {
		begin += time.Duration(rnd.ExpFloat64() / c.Rate * 1e9)
		var prompt []byte
		s := int(system.Uint64())
		for i := range c.SystemBlocks {
			prompt = append(prompt, blockOf(1, s, i)...)
		}
		for i := range c.TurnBlocks {
			prompt = append(prompt, blockOf(3, id, i)...)
		}
		at(begin, turn(prompt, id, 0, 1+rnd.IntN(2*c.Turns-1)-1))
	}
	for len(queue) > 0 {
		e := heap.Pop(&queue).(event)
		e.do(e.at)
	}
	slices.Sort(times)
	return Result{len(times), float64(blocksHit) / float64(blocksSeen), times[len(times)/2], times[len(times)*99/100]}
}
