package balancer

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/upstream"
)

// bodyError is a failure of the client's side of a request.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "reading the body of the request: " + e.err.Error() }

// copyBuffers are for bodies that come faster than they are passed on.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// attempt sends the request to a replica and passes the answer on.
func (x *exchange) attempt(r *replica) result {
	if isUpgrade(x.r) {
		return x.overHTTP1(r, true)
	}
	if r.Protocol == balancerapi.H2C || isGRPC(x.r) {
		return x.overHTTP2(r)
	}
	return x.overHTTP1(r, false)
}

func isUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Header["Upgrade"] != nil && hasToken(r.Header["Connection"], "upgrade")
}

// afterFunc is [context.AfterFunc], without what that allocates where the context
// has the method itself.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if a, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return a.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// target is the request's target as it came, in origin form.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// overHTTP1 is an attempt over HTTP/1.1.
func (x *exchange) overHTTP1(r *replica, upgrade bool) (res result) {
	ctx := x.r.Context()
	c, err := r.pool.Get(ctx, upgrade || len(x.ask.tried) > 0 || x.tries > 1)
	if err != nil {
		if ctx.Err() != nil {
			return result{err: err}
		}
		return result{outcome: unreachable, err: errors.New(connecting + err.Error()), again: x.replayable()}
	}
	if !r.track(c) {
		c.Close()
		return result{err: errors.New("the replica was removed"), again: x.replayable()}
	}
	reuse := false
	stop := afterFunc(ctx, func() { c.Close() })
	defer func() {
		if x.handedOn {
			return
		}
		r.untrack(c)
		if stop() && reuse {
			c.Put()
		} else {
			c.Close()
		}
	}()
	x.times.begin(c, x.answerBy(), x.conf.idleTimeout)

	h := upstream.Head{Method: x.r.Method, Target: target(x.r), Host: x.r.Host, Header: x.r.Header, Skip: x.dropped(), Length: int64(len(x.body))}
	var extra [16]string
	h.Extra = x.forwarded(extra[:0])
	if x.rest != nil {
		h.Length = x.r.ContentLength
	}
	if hasToken(x.r.Header["Te"], "trailers") {
		h.Extra = append(h.Extra, "Te", "trailers")
	}
	if upgrade {
		h.Extra = append(h.Extra, "Connection", "Upgrade", "Upgrade", strings.Join(x.r.Header["Upgrade"], ", "))
	}
	if x.rest != nil && h.Length < 0 && len(x.r.Trailer) > 0 {
		h.Extra = append(h.Extra, "Trailer", strings.Join(sortedKeys(x.r.Trailer), ", "))
	}
	first := x.body
	if h.Length < 0 {
		first = nil // it is sent in chunks, by Send
	}
	n, err := c.WriteRequest(&h, first)
	if err != nil && n == 0 {
		return x.broken(c, err, x.replayable())
	}
	up := &x.up
	*up = upload{}
	if err == nil && x.rest != nil {
		up.start(x, c, h.Length)
		defer up.stop(x, c)
	}
	// A write that failed half way does not mean that there is no answer.
	resp, err := c.ReadResponse(x.r.Method, x.informational)
	if err != nil {
		if berr := up.bodyError(); berr != nil {
			return result{err: &bodyError{berr}}
		}
		return x.broken(c, err, x.idempotent() && x.replayable())
	}
	x.firstByte = time.Since(x.start)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !upgrade {
			return result{outcome: failed, err: errors.New("it switched protocols without having been asked to")}
		}
		return x.upgraded(r, c, resp, stop)
	}
	if whole, here := upstream.Whole(resp); here {
		res = x.answerWhole(resp, whole)
	} else {
		x.times.answer(resp.Header, writing{x.w})
		res = x.answer(resp, c.R.Buffered)
	}
	up.stop(x, c)
	reuse = res.err == nil && !resp.Close && x.status != statusClientGone && up.finished()
	if reuse {
		x.times.end()
	}
	return res
}

// answerBy is when an answer has to begin; the zero time: whenever it likes.
func (x *exchange) answerBy() time.Time {
	if x.conf.requestTimeout == 0 {
		return time.Time{}
	}
	return time.Now().Add(x.conf.requestTimeout)
}

// broken is the result of an attempt that got no answer.
func (x *exchange) broken(c *upstream.Conn, err error, again bool) result {
	if x.r.Context().Err() != nil {
		return result{err: err}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return result{outcome: failed, err: err, timeout: true}
	}
	if c.Reused {
		// Its other end closed it while it was unused; a new one says more.
		return result{err: err, again: again, stale: true}
	}
	return result{outcome: failed, err: err, again: again}
}

// informational passes on an answer 1xx, such as 103.
func (x *exchange) informational(resp *http.Response) {
	if x.r.ProtoMajor == 1 && x.r.ProtoMinor == 0 {
		return
	}
	h := x.w.Header()
	before := maps.Clone(h)
	copyAnswer(h, resp.Header)
	delete(h, "Content-Type")
	x.w.WriteHeader(resp.StatusCode)
	clear(h)
	maps.Copy(h, before)
}

// answerHead passes on the head of an answer.
func (x *exchange) answerHead(resp *http.Response, announced []string) result {
	h := x.w.Header()
	copyAnswer(h, resp.Header)
	if len(announced) > 0 {
		h["Trailer"] = announced
	}
	if x.cookie != nil {
		h.Add("Set-Cookie", x.cookie.String())
	}
	x.status, x.sent = resp.StatusCode, true
	x.w.WriteHeader(resp.StatusCode)
	if resp.StatusCode >= 500 {
		return result{outcome: failed}
	}
	return result{outcome: succeeded}
}

// answerWhole passes on an answer of which everything is here already.
func (x *exchange) answerWhole(resp *http.Response, body []byte) result {
	res := x.answerHead(resp, nil)
	if len(body) == 0 {
		return res
	}
	if _, err := x.w.Write(body); err != nil {
		x.status = statusClientGone
		return result{}
	}
	x.out.Add(int64(len(body)))
	return res
}

// answer passes on an answer. buffered says how much of it is there already, so
// that nothing waits for more while there is something to pass on.
func (x *exchange) answer(resp *http.Response, buffered func() int) result {
	body := resp.Body
	defer body.Close()
	defer x.times.answered()
	announced := sortedKeys(resp.Trailer)
	res := x.answerHead(resp, announced)
	h := x.w.Header()
	if resp.ContentLength == 0 || resp.Body == http.NoBody {
		return res
	}
	flusher := x.w.(http.Flusher)
	if buffered() == 0 {
		flusher.Flush() // the head, so that the client does not wait for it
	}
	// A small buffer while there is little, a large one while there is much: there
	// may be thousands of silent streams.
	small := make([]byte, 1<<10)
	buf := small
	var big *[]byte
	defer func() {
		if big != nil {
			copyBuffers.Put(big)
		}
	}()
	for {
		n, err := body.Read(buf)
		if n > 0 {
			x.times.moved()
			if _, werr := x.w.Write(buf[:n]); werr != nil {
				x.status = statusClientGone
				return result{}
			}
			x.out.Add(int64(n))
			if err == nil && buffered() == 0 && x.out.Load() != resp.ContentLength {
				flusher.Flush()
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			if x.r.Context().Err() != nil {
				x.status = statusClientGone
				return result{}
			}
			return result{outcome: failed, err: err}
		}
		switch {
		case n == len(buf) && big == nil:
			big = copyBuffers.Get().(*[]byte)
			buf = *big
		case n < len(small) && big != nil && buffered() == 0:
			copyBuffers.Put(big)
			big, buf = nil, small
		}
	}
	for name, values := range resp.Trailer {
		if !slices.Contains(announced, name) {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
	return res
}

func sortedKeys(h http.Header) []string {
	if len(h) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(h))
}

// An upload sends the body of a request while the answer is read.
type upload struct {
	done chan struct{} // nil: there is none
	ok   atomic.Bool
	err  atomic.Pointer[error] // of the client's side; set before the connection is closed for it
}

func (u *upload) start(x *exchange, c *upstream.Conn, length int64) {
	if x.r.ProtoMajor == 1 {
		http.NewResponseController(x.w).EnableFullDuplex()
	}
	x.restRead.Store(true)
	x.times.enter(uploading)
	u.done = make(chan struct{})
	body, sent := x.rest, length
	if length < 0 {
		body = io.MultiReader(newBytes(x.body), x.rest)
	} else {
		sent -= int64(len(x.body))
	}
	go func() {
		defer close(u.done)
		p := copyBuffers.Get().(*[]byte)
		defer copyBuffers.Put(p)
		err := c.Send(body, sent, *p, func() http.Header { return x.r.Trailer }, func(int) { x.times.moved() })
		x.times.uploaded()
		var b *upstream.BodyError
		switch {
		case err == nil:
			u.ok.Store(true)
		case errors.As(err, &b):
			u.err.Store(&b.Err)
			c.Close() // the replica cannot have all of the request
		}
	}()
}

// stop ends an upload that nobody needs any more. One that has read all of the body
// is nearly over, and the client's connection can be used again.
func (u *upload) stop(x *exchange, c *upstream.Conn) {
	if u.done == nil {
		return
	}
	select {
	case <-u.done:
		return
	default:
	}
	wait := time.Duration(0)
	if x.restEnds.Load() {
		wait = time.Second
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-u.done:
		return
	case <-t.C:
	}
	c.Close()
	if !x.restEnds.Load() {
		x.cutReading()
	}
	<-u.done
}

// finished reports whether all of the body, if there is one, was sent.
func (u *upload) finished() bool { return u.done == nil || u.ok.Load() }

// bodyError is why the client's side failed, if it has.
func (u *upload) bodyError() error {
	if p := u.err.Load(); p != nil {
		return *p
	}
	return nil
}
