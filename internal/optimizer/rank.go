package optimizer

import "math"

// rank sorts candidates by what the plan minimizes, data that moves included, then by
// the other of money and time, then by the order in which they were found. What has no price comes
// last, but for the machine sky runs on; ordered requests keep their entries apart.
//
// There can be ten thousand of them, mostly equal in all but the cost, so they
// are sorted by digits: digits that are all the same cost nothing.
func rank(cands []Candidate, target Target, ordered bool) {
	keys := make([]rankKey, len(cands))
	spare := make([]rankKey, len(cands))
	for i := range keys {
		keys[i].at = uint32(i)
	}
	sortBy := func(number func(c *Candidate) uint64) {
		for i := range keys {
			keys[i].number = number(&cands[keys[i].at])
		}
		keys, spare = sortDigits(keys, spare)
	}
	cost := func(c *Candidate) uint64 { return uint64(nano(c.Cost + c.Moved)) }
	seconds := func(c *Candidate) uint64 { return uint64(nano(c.Time + c.MovedFor)) }
	// Least important first: each pass keeps the order of the one before.
	if target == Time {
		sortBy(cost)
		sortBy(seconds)
	} else {
		sortBy(seconds)
		sortBy(cost)
	}
	sortBy(func(c *Candidate) uint64 {
		k := uint64(0)
		switch {
		case c.LastResort:
			k = 2
		case c.Unpriced:
			k = 1
		}
		if ordered {
			k += uint64(c.entry) << 2
		}
		return k
	})
	arrange(cands, keys)
}

// setRanks gives candidates their ranks, in the order in which they are.
func setRanks(cands []Candidate) {
	for i := range cands {
		cands[i].rank = int32(i)
	}
}

type rankKey struct {
	number uint64
	at     uint32
}

// sortDigits sorts keys stably by number, eleven bits at a time, and returns
// them and the other, now spare, slice.
func sortDigits(keys, spare []rankKey) (sorted, other []rankKey) {
	all, any := uint64(math.MaxUint64), uint64(0)
	for i := range keys {
		all, any = all&keys[i].number, any|keys[i].number
	}
	const bits, mask = 11, 1<<11 - 1
	var starts [1 << bits]uint32
	for shift := 0; shift < 64; shift += bits {
		if (all^any)>>shift&mask == 0 {
			continue
		}
		clear(starts[:])
		for i := range keys {
			starts[keys[i].number>>shift&mask]++
		}
		sum := uint32(0)
		for d, n := range starts {
			starts[d], sum = sum, sum+n
		}
		for i := range keys {
			d := keys[i].number >> shift & mask
			spare[starts[d]] = keys[i]
			starts[d]++
		}
		keys, spare = spare, keys
	}
	return keys, spare
}

// arrange moves the candidates into the order of the keys, in place.
func arrange(cands []Candidate, keys []rankKey) {
	for start := range keys {
		if int(keys[start].at) == start {
			continue
		}
		held, i := cands[start], start
		for {
			from := int(keys[i].at)
			keys[i].at = uint32(i)
			if from == start {
				cands[i] = held
				break
			}
			cands[i] = cands[from]
			i = from
		}
	}
}
