//go:build linux

package cached

import (
	"container/heap"
	"time"
)

// A queue holds files in the order in which they are due. It is guarded by Volume.mu.
type queue struct {
	items queued
	at    map[*file]*item
}

type item struct {
	f     *file
	due   time.Time
	index int
}

type queued []*item

func (q queued) Len() int           { return len(q) }
func (q queued) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queued) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *queued) Push(x any) {
	it := x.(*item)
	it.index = len(*q)
	*q = append(*q, it)
}
func (q *queued) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return it
}

// add queues a file, or changes when it is due.
func (q *queue) add(f *file, due time.Time) {
	if q.at == nil {
		q.at = map[*file]*item{}
	}
	if it := q.at[f]; it != nil {
		it.due = due
		heap.Fix(&q.items, it.index)
		return
	}
	it := &item{f: f, due: due}
	q.at[f] = it
	heap.Push(&q.items, it)
}

func (q *queue) remove(f *file) {
	if it := q.at[f]; it != nil {
		heap.Remove(&q.items, it.index)
		delete(q.at, f)
	}
}

func (q *queue) has(f *file) bool { return q.at[f] != nil }

// next is the file that is due first, and when.
func (q *queue) next() (*file, time.Time) {
	if len(q.items) == 0 {
		return nil, time.Time{}
	}
	return q.items[0].f, q.items[0].due
}
