package balancer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/policy"
	"github.com/skypilot-go/sky/internal/serve/balancer/prefix"
)

// maxReplay is the longest body that is held so that a request can be sent again,
// and how much of a prompt is looked at.
const maxReplay = 64 << 10

// An exchange is one request and what became of it.
type exchange struct {
	s     *service
	conf  *settings
	w     http.ResponseWriter
	r     *http.Request
	start time.Time
	ask   ask
	trace string

	body     []byte    // read already, and held until the request needs no other attempt
	rest     io.Reader // what comes after; nil: nothing
	restRead atomic.Bool
	restEnds atomic.Bool  // all of rest was read
	cookie   *http.Cookie // for the client, so that it keeps its session

	times timeouts
	up    upload

	// What became of it.
	status    int // 0: no answer
	sent      bool
	got       grant
	tries     int
	firstByte time.Duration
	in, out   atomic.Int64
	why       string
	handedOn  bool // to goroutines of its own, which end it
	cut       bool // reading from the client was ended here, which looks as if it had left
	wasGone   bool // the client had left before
}

// gone reports whether the client has left.
func (x *exchange) gone() bool {
	if x.cut {
		return x.wasGone
	}
	return x.r.Context().Err() != nil
}

// cutReading ends whatever reads the body of the request.
func (x *exchange) cutReading() {
	x.wasGone, x.cut = x.gone(), true
	http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0))
}

// Reasons for answers of the balancer's own.
const (
	reasonNoReplica = iota
	reasonQueueFull
	reasonWaited
	reasonStopping
	reasonTooLarge
	reasonUnreachable
	reasonFailed
	reasonTimeout
	reasonBadBody
	reasonMethod
)

var reasonNames = [...]string{"no_replica", "queue_full", "waited", "stopping", "body_too_large", "unreachable", "failed", "timeout", "bad_body", "method"}

// ServeHTTP answers a request to the service.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{s: s, conf: s.conf.Load(), w: w, r: r, start: time.Now()}
	x.trace = traceparent(r.Header)
	if !s.enter(x.start) {
		x.refuse(errStopping)
		x.record()
		return
	}
	defer func() {
		if x.handedOn {
			return
		}
		x.finish()
		if x.status == statusClientGone && !x.sent {
			panic(http.ErrAbortHandler) // or net/http would answer 200
		}
	}()
	if r.Method == http.MethodConnect {
		x.refuseAs(http.StatusMethodNotAllowed, reasonMethod, "a load balancer makes no tunnels")
		return
	}
	if most := x.conf.Limits.BodyBytes; most > 0 && r.ContentLength > most {
		x.refuseAs(http.StatusRequestEntityTooLarge, reasonTooLarge, fmt.Sprintf("the body has %d bytes; service %s takes at most %d", r.ContentLength, s.name, most))
		return
	}
	if err := x.prepare(); err != nil {
		x.bodyFailed(err)
		return
	}
	x.serve()
}

// prepare reads what the choice of a replica depends on, and what may have to be
// sent twice.
func (x *exchange) prepare() error {
	r, c := x.r, x.conf
	prompt := c.policy == balancerapi.PrefixAware && r.Method == http.MethodPost && isJSON(r.Header)
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case r.ContentLength > 0 && r.ContentLength <= maxReplay:
		x.body = make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, x.body)
		x.in.Add(int64(n))
		if err != nil {
			return err
		}
	default:
		x.rest = x.limited(r.Body)
		if prompt { // a document, not a stream: its beginning comes soon
			head := make([]byte, maxReplay)
			n, err := io.ReadFull(x.rest, head)
			x.body = head[:n]
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				x.rest = nil
			} else if err != nil {
				return err
			}
		}
	}
	if prompt {
		if model, text, ok := prefix.Prompt(x.body); ok {
			x.ask.blocks = prefix.Blocks(nil, model, text)
		}
	}
	if c.policy == balancerapi.SessionAffinity {
		x.session()
	}
	return nil
}

func isJSON(h http.Header) bool {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(t), "application/json")
}

// session finds the request's session, or begins one.
func (x *exchange) session() {
	p := x.conf.Policy
	if p.Header != "" {
		if v := x.r.Header.Get(p.Header); v != "" {
			x.ask.key, x.ask.keyed = policy.Hash(v), true
		}
		return
	}
	v := ""
	if c, err := x.r.Cookie(p.Cookie); err == nil && c.Value != "" {
		v = c.Value
	} else {
		v = rand.Text()
		x.cookie = &http.Cookie{Name: p.Cookie, Value: v, Path: "/", HttpOnly: true, Secure: x.r.TLS != nil, SameSite: http.SameSiteLaxMode}
	}
	x.ask.key, x.ask.keyed = policy.Hash(v), true
}

// limited counts the bytes of a body, and fails when it is too long.
func (x *exchange) limited(r io.Reader) io.Reader { return &bodyReader{x, r} }

type bodyReader struct {
	x *exchange
	r io.Reader
}

// errTooLong means that a body without a Content-Length is longer than the limit.
var errTooLong = errors.New("the body of the request is longer than the service takes")

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if total := b.x.in.Add(int64(n)); b.x.conf.Limits.BodyBytes > 0 && total > b.x.conf.Limits.BodyBytes {
		return n, errTooLong
	}
	if err == io.EOF {
		b.x.restEnds.Store(true)
	}
	return n, err
}

// serve tries replicas until one has answered or the request must not be sent again.
func (x *exchange) serve() {
	ctx := x.r.Context()
	for {
		g, err := x.s.acquire(ctx, &x.ask, x.held())
		if err != nil {
			if x.tries > 0 && !errors.Is(err, errStopping) && !x.gone() {
				x.failedAttempts()
				return
			}
			x.refuse(err)
			return
		}
		x.tries++
		x.got = g
		res := x.attempt(g.r)
		if x.handedOn {
			return
		}
		x.s.release(g, res.outcome)
		if res.err == nil {
			return
		}
		g.r.counts.errors.Add(1)
		g.version.errors.Add(1)
		x.why = res.err.Error()
		if !res.again || x.gone() || x.sent || x.tries >= x.conf.attempts {
			x.attemptFailed(res)
			return
		}
		x.s.counts.retries.Add(1)
		if !res.stale {
			x.ask.tried = append(x.ask.tried, g.r)
		}
	}
}

// held is the memory that the request takes while it waits.
func (x *exchange) held() int64 { return int64(len(x.body)) + 4<<10 }

// A result is what an attempt at one replica came to.
type result struct {
	outcome outcome
	err     error // nil: the request is answered, if only in part
	again   bool  // it may be sent again
	stale   bool  // the connection was an old one, which says nothing about the replica
	timeout bool
}

// idempotent reports whether sending the request twice is the same as once.
func (x *exchange) idempotent() bool {
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	h := x.r.Header
	return h["Idempotency-Key"] != nil || h["X-Idempotency-Key"] != nil
}

// replayable reports whether all of the request is still there to be sent.
func (x *exchange) replayable() bool { return !x.restRead.Load() }

// attemptFailed answers after an attempt that was the last one.
func (x *exchange) attemptFailed(res result) {
	var body *bodyError
	switch {
	case x.gone():
		x.status = statusClientGone
	case x.sent:
		// The answer has begun: breaking it off is how the client learns of it.
		panic(http.ErrAbortHandler)
	case errors.As(res.err, &body):
		x.bodyFailed(body.err)
	case res.timeout:
		text := fmt.Sprintf("replica %d of service %s did not answer within %v", x.got.r.ID, x.s.name, x.conf.requestTimeout)
		if !x.times.late() {
			text = fmt.Sprintf("nothing of the body of the request went to replica %d of service %s for %v", x.got.r.ID, x.s.name, x.conf.idleTimeout)
		}
		x.refuseAs(http.StatusGatewayTimeout, reasonTimeout, text)
	default:
		x.failedAttempts()
	}
}

func (x *exchange) failedAttempts() {
	if strings.HasPrefix(x.why, connecting) {
		x.unavailable(http.StatusServiceUnavailable, reasonUnreachable, "no replica of service "+x.s.name+" could be reached")
		return
	}
	x.refuseAs(http.StatusBadGateway, reasonFailed, "a replica of service "+x.s.name+" failed while it had the request: "+x.why)
}

// connecting begins the error of an attempt that reached no replica.
const connecting = "connecting: "

// bodyFailed answers a request whose body could not be read.
func (x *exchange) bodyFailed(err error) {
	switch {
	case errors.Is(err, errTooLong):
		x.refuseAs(http.StatusRequestEntityTooLarge, reasonTooLarge, fmt.Sprintf("the body has more than %d bytes, which service %s takes at most", x.conf.Limits.BodyBytes, x.s.name))
	case x.gone():
		x.status = statusClientGone
	default:
		x.refuseAs(http.StatusBadRequest, reasonBadBody, "reading the body of the request: "+err.Error())
	}
}

// refuse answers a request that got no replica.
func (x *exchange) refuse(err error) {
	name := x.s.name
	switch {
	case errors.Is(err, errStopping):
		x.w.Header().Set("Connection", "close")
		x.unavailable(http.StatusServiceUnavailable, reasonStopping, "this load balancer of service "+name+" is stopping")
	case errors.Is(err, errNoneReady):
		x.unavailable(http.StatusServiceUnavailable, reasonNoReplica, "no replica of service "+name+" is ready")
	case errors.Is(err, errBusy), errors.Is(err, errTried), errors.Is(err, errQueueFull):
		x.unavailable(http.StatusServiceUnavailable, reasonQueueFull, "service "+name+": "+err.Error())
	case errors.Is(err, errWaited):
		x.unavailable(http.StatusServiceUnavailable, reasonWaited, fmt.Sprintf("service %s: no replica was free within %v", name, x.conf.queue.timeout))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		x.status = statusClientGone
	default:
		x.unavailable(http.StatusServiceUnavailable, reasonNoReplica, err.Error())
	}
}

func (x *exchange) unavailable(status, reason int, text string) {
	seconds := int(max(1, (x.conf.retryAfter+time.Second-1)/time.Second))
	x.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	x.refuseAs(status, reason, fmt.Sprintf("%s; try again in %d s", text, seconds))
}

// refuseAs is an answer of the balancer's own.
func (x *exchange) refuseAs(status, reason int, text string) {
	x.s.counts.refused[reason].Add(1)
	x.status, x.why = status, text
	h := x.w.Header()
	if x.r.ProtoMajor == 2 && isGRPC(x.r) { // its clients read a status of their own
		code := "14" // unavailable
		if status == http.StatusGatewayTimeout {
			code = "4"
		} else if status == http.StatusRequestEntityTooLarge {
			code = "8"
		}
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", code)
		h.Set("Grpc-Message", percent(text))
		x.w.WriteHeader(http.StatusOK)
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	h.Set("X-Content-Type-Options", "nosniff")
	if x.rest != nil {
		h.Set("Connection", "close") // rather than reading the rest of a body that nobody takes
	}
	x.w.WriteHeader(status)
	io.WriteString(x.w, text+"\n")
}

// percent encodes a message as grpc-message is.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isGRPC(r *http.Request) bool {
	t := r.Header.Get("Content-Type")
	return t == "application/grpc" || strings.HasPrefix(t, "application/grpc+") || strings.HasPrefix(t, "application/grpc;")
}

// finish ends a request: its counters and its line of the log.
func (x *exchange) finish() {
	x.record()
	x.s.leave()
}

func (x *exchange) record() {
	e := x.ended()
	e.record(x.s, x.got)
}

// dropped reports whether a header does not go to the replica.
func (x *exchange) dropped() func(name string) bool {
	named := connectionNames(x.r.Header)
	if len(named) == 0 {
		return leftOut
	}
	return func(name string) bool { return leftOut(name) || slices.Contains(named, name) }
}
