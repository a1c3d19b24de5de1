package balancer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// overHTTP2 is an attempt over HTTP/2 without TLS, as gRPC needs it.
func (x *exchange) overHTTP2(r *replica) result {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	end := &canceller{cancel: cancel}
	if !r.track(end) {
		return result{err: errors.New("the replica was removed"), again: x.replayable()}
	}
	defer r.untrack(end)
	watch := newWatchdog(cancel)
	x.times.begin(watch, x.answerBy(), x.conf.idleTimeout)
	defer x.times.end()

	out := x.r.WithContext(ctx)
	out.Header = http.Header{}
	drop := x.dropped()
	for name, values := range x.r.Header {
		if !drop(name) {
			out.Header[name] = values
		}
	}
	extra := x.forwarded(nil)
	for i := 0; i < len(extra); i += 2 {
		out.Header[extra[i]] = []string{extra[i+1]}
	}
	if hasToken(x.r.Header["Te"], "trailers") {
		out.Header["Te"] = []string{"trailers"}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // or net/http would set its own
	}
	u := *x.r.URL
	u.Scheme, u.Host = "http", r.Address
	out.URL, out.RequestURI, out.TransferEncoding = &u, "", nil
	var sending *sentBody
	switch {
	case x.rest != nil:
		if x.r.ProtoMajor == 1 {
			http.NewResponseController(x.w).EnableFullDuplex()
		}
		sending = &sentBody{x: x, from: io.MultiReader(bytes.NewReader(x.body), x.rest)}
		if !isGRPC(x.r) { // messages come when there are any
			x.times.enter(uploading)
		}
		out.Body = sending
	case len(x.body) > 0:
		out.Body = io.NopCloser(bytes.NewReader(x.body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
	default:
		out.Body = http.NoBody
	}
	resp, err := r.transport().RoundTrip(out)
	if sending != nil {
		defer x.settle(sending, cancel)
	}
	if err != nil {
		if sending != nil {
			if berr := sending.failure(); berr != nil {
				return result{err: &bodyError{berr}}
			}
		}
		var op *net.OpError
		switch {
		case x.r.Context().Err() != nil:
			return result{err: err}
		case watch.hasFired():
			return result{outcome: failed, err: err, timeout: true}
		case errors.As(err, &op) && op.Op == "dial":
			return result{outcome: unreachable, err: errors.New(connecting + err.Error()), again: x.replayable()}
		}
		return result{outcome: failed, err: err, again: x.idempotent() && x.replayable()}
	}
	x.firstByte = time.Since(x.start)
	x.times.answer(resp.Header, writing{x.w})
	return x.answer(resp, func() int { return 0 })
}

// canceller ends a request.
type canceller struct{ cancel context.CancelFunc }

func (c *canceller) Close() error { c.cancel(); return nil }

// settle waits until nobody reads the body of the request any more, which is only
// allowed while the handler runs.
func (x *exchange) settle(b *sentBody, cancel context.CancelFunc) {
	if b.ended.Load() {
		return
	}
	cancel()
	b.stopped.Store(true)
	if b.busy.Load() > 0 {
		if !x.restEnds.Load() {
			x.cutReading()
		}
		for b.busy.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// sentBody is the body of a request on its way to a replica.
type sentBody struct {
	x              *exchange
	from           io.Reader
	busy           atomic.Int32
	ended, stopped atomic.Bool
	err            atomic.Pointer[error]
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.busy.Add(1)
	defer b.busy.Add(-1)
	if b.stopped.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	b.x.restRead.Store(true)
	n, err := b.from.Read(p)
	b.x.times.moved()
	if err != nil {
		b.ended.Store(true)
		b.x.times.uploaded()
		if err != io.EOF {
			b.err.Store(&err)
		}
	}
	return n, err
}

func (b *sentBody) Close() error { b.stopped.Store(true); return nil }

func (b *sentBody) failure() error {
	if p := b.err.Load(); p != nil {
		return *p
	}
	return nil
}
