package prefix

// A Tree knows which replicas have seen which blocks, of each replica as many as
// its limit, the latest. It is not for concurrent use.
type Tree struct {
	limit    int // of blocks, for each replica
	nodes    map[uint64]*node
	replicas map[int]*recency
}

// node is a block, which has the hash of its whole prefix, and the replicas that
// have seen it.
type node struct {
	hash uint64
	seen []*entry
}

// entry is a block that one replica has seen, in the list of that replica.
type entry struct {
	node       *node
	of         *recency
	prev, next *entry
}

// recency lists the blocks of one replica, the latest first. A prefix is always
// later than what follows it, so that the last one is the end of a prompt.
type recency struct {
	id   int
	head entry // of a ring
	n    int
}

// NewTree remembers at most limit blocks of each replica.
func NewTree(limit int) *Tree {
	return &Tree{limit: max(1, limit), nodes: map[uint64]*node{}, replicas: map[int]*recency{}}
}

// Match sets, for each replica of ids, how many leading blocks it has seen.
func (t *Tree) Match(blocks []uint64, ids []int, out []int) {
	clear(out[:len(ids)])
	for depth, h := range blocks {
		n := t.nodes[h]
		if n == nil {
			return
		}
		found := false
		for _, e := range n.seen {
			for i, id := range ids {
				if id == e.of.id && out[i] == depth {
					out[i], found = depth+1, true
				}
			}
		}
		if !found {
			return
		}
	}
}

// Add notes that a replica has seen blocks.
func (t *Tree) Add(blocks []uint64, id int) {
	if len(blocks) > t.limit {
		blocks = blocks[:t.limit]
	}
	r := t.replicas[id]
	if r == nil {
		r = &recency{id: id}
		r.head.prev, r.head.next = &r.head, &r.head
		t.replicas[id] = r
	}
	for i := len(blocks) - 1; i >= 0; i-- { // the first block becomes the latest
		n := t.nodes[blocks[i]]
		if n == nil {
			n = &node{hash: blocks[i]}
			t.nodes[blocks[i]] = n
		}
		var e *entry
		for _, s := range n.seen {
			if s.of == r {
				e = s
			}
		}
		if e == nil {
			e = &entry{node: n, of: r}
			n.seen = append(n.seen, e)
			r.n++
		} else {
			e.prev.next, e.next.prev = e.next, e.prev
		}
		e.prev, e.next = &r.head, r.head.next
		e.prev.next, e.next.prev = e, e
	}
	for r.n > t.limit {
		t.forget(r.head.prev)
	}
}

func (t *Tree) forget(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.of.n--
	n := e.node
	for i, s := range n.seen {
		if s == e {
			last := len(n.seen) - 1
			n.seen[i] = n.seen[last]
			n.seen[last] = nil
			n.seen = n.seen[:last]
			break
		}
	}
	if len(n.seen) == 0 {
		delete(t.nodes, n.hash)
	}
}

// Remove forgets a replica.
func (t *Tree) Remove(id int) {
	if r := t.replicas[id]; r != nil {
		for r.n > 0 {
			t.forget(r.head.prev)
		}
		delete(t.replicas, id)
	}
}

// Len is how many different blocks are remembered.
func (t *Tree) Len() int { return len(t.nodes) }
