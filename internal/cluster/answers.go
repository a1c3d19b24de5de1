package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
)

// StatusJSON is [Manager.Status] as JSON. Many ask for the same list, again and
// again: it is made once for all who ask before any cluster changes. The caller
// must not change it.
func (m *Manager) StatusJSON(ctx context.Context, call Call, body api.StatusBody) (json.RawMessage, error) {
	fill := func() (json.RawMessage, error) {
		records, err := m.Status(ctx, call, body)
		if err != nil {
			return nil, err
		}
		return json.Marshal(records)
	}
	if body.Refresh == api.RefreshForce || body.Refresh == api.RefreshAuto {
		return fill()
	}
	// What is read after the version was is at least as new; while the version
	// stays it is exactly that.
	version, err := m.Store.Clusters().Version(ctx)
	if err != nil {
		return nil, err
	}
	if version == 0 { // this database cannot tell
		return fill()
	}
	return m.answers.get(ctx, version, answerKey(call, body), fill)
}

// keysTime is how long a list with keys is kept at most: keys lie in files, and
// no version tells of those.
const keysTime = 5 * time.Second

// answerKey is everything that a list without refresh follows from, besides the
// clusters.
func answerKey(call Call, b api.StatusBody) string {
	mine, keys := "", ""
	if b.AllUsers != nil && !*b.AllUsers {
		mine = call.User.ID
	}
	if withKeys(b) {
		keys = fmt.Sprint("keys ", time.Now().UnixNano()/int64(keysTime))
		if call.Scope != nil {
			keys += " of " + call.Scope.User
		}
	}
	given := func(n *int) string {
		if n == nil {
			return "-"
		}
		return strconv.Itoa(*n)
	}
	return fmt.Sprintf("%q %q %q %t %s/%s %q", b.ClusterNames, call.Scope.Within(), mine, withHandle(b), given(b.Limit), given(b.Page), keys)
}

// answers are lists of clusters at one version of the database. The zero value
// is empty.
type answers struct {
	mu      sync.Mutex
	version int64
	by      map[string]*listing
	size    int         // bytes
	forget  *time.Timer // when nobody has asked for a while
}

// listing is one list, or about to be.
type listing struct {
	done chan struct{} // closed when json or err is set
	json json.RawMessage
	err  error
}

// Bounds of what is kept.
const (
	answersSize = 16 << 20
	answersMost = 256
	answersTime = time.Minute
)

// get is the list of that key, which fill makes, for somebody who has just seen
// that version. Those who ask meanwhile wait for it; if it fails each makes its
// own, since the failure may be that of one caller's context.
func (a *answers) get(ctx context.Context, version int64, key string, fill func() (json.RawMessage, error)) (json.RawMessage, error) {
	a.mu.Lock()
	if a.by == nil || version > a.version || len(a.by) >= answersMost {
		a.version, a.by, a.size = max(version, a.version), map[string]*listing{}, 0
	}
	l := a.by[key] // at a version that is as new, or newer
	if l != nil {
		a.mu.Unlock()
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if l.err == nil {
			return l.json, nil
		}
		return fill()
	}
	l = &listing{done: make(chan struct{})}
	if version == a.version {
		a.by[key] = l
	}
	a.mu.Unlock()

	l.err = fmt.Errorf("the list of clusters was not made")
	defer close(l.done) // also if fill panics
	l.json, l.err = fill()

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[key] != l {
		return l.json, l.err
	}
	if a.size += len(l.json); l.err != nil || a.size > answersSize {
		delete(a.by, key)
		a.size -= len(l.json)
	}
	if a.forget == nil {
		a.forget = time.AfterFunc(answersTime, a.clear)
	} else {
		a.forget.Reset(answersTime)
	}
	return l.json, l.err
}

// clear gives the memory back.
func (a *answers) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by, a.size = nil, 0
}
