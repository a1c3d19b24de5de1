package requests

import "github.com/skypilot-go/sky/internal/state"

// queue is where long requests wait for a slot: users take turns, and each
// user's requests keep their order.
type queue struct {
	turns  []string                  // users with something waiting; the first is next
	byUser map[string][]string       // ids in order of arrival
	rows   map[string]*state.Request // as they were when they arrived
}

// push adds a request at the end of its user's line, unless it is in.
func (q *queue) push(row *state.Request) {
	if q.has(row.ID) {
		return
	}
	if q.rows == nil {
		q.byUser, q.rows = map[string][]string{}, map[string]*state.Request{}
	}
	user := row.UserID
	if len(q.byUser[user]) == 0 {
		q.turns = append(q.turns, user)
	}
	q.byUser[user] = append(q.byUser[user], row.ID)
	q.rows[row.ID] = row
}

// pop takes the next request out; nil if there is none.
func (q *queue) pop() *state.Request {
	for len(q.turns) > 0 {
		user := q.turns[0]
		q.turns = q.turns[1:]
		ids := q.byUser[user]
		for len(ids) > 0 && !q.has(ids[0]) { // removed
			ids = ids[1:]
		}
		if len(ids) <= 1 {
			delete(q.byUser, user)
		} else {
			q.byUser[user] = ids[1:]
			q.turns = append(q.turns, user)
		}
		if len(ids) > 0 {
			row := q.rows[ids[0]]
			delete(q.rows, row.ID)
			return row
		}
	}
	return nil
}

// remove takes a request out of turn.
func (q *queue) remove(id string) { delete(q.rows, id) }

func (q *queue) has(id string) bool { return q.rows[id] != nil }

func (q *queue) len() int { return len(q.rows) }
