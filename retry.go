package sky

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// outagePatience is how long a call is repeated while the server does not
// answer, unless [Options.Patience] says otherwise.
const outagePatience = 30 * time.Second

// revivePause is how long nobody listens before [Options.Revive] is called: a
// service manager or a server that takes over may be faster. reviveEvery is the
// time between two calls, so that a server that dies at once is not started in a
// loop.
const (
	revivePause = time.Second
	reviveEvery = time.Minute
)

var (
	// outageBackoff is the pause between tries while the server does not answer.
	outageBackoff = backoff{first: 100 * time.Millisecond, max: time.Second, factor: 1.6, jitter: 0.2}
	// brokenBackoff is the pause after an answer that says that the server failed.
	brokenBackoff = backoff{first: time.Second, max: 2 * time.Second, factor: 1.6, jitter: 0.2}
	// laterBackoff is the pause after an answer that says "later", in all not longer
	// than laterTotal.
	laterBackoff = backoff{first: 5 * time.Second, max: 25 * time.Second, factor: 1.6, jitter: 0.4}
)

const laterTotal = 600 * time.Second

// serverFailures is how many answers "500" in a row are taken for a passing
// trouble of the server, such as a database that fails over.
const serverFailures = 3

// backoff is how long to wait between tries: from first, growing by factor, up
// to max, spread by jitter.
type backoff struct {
	first, max     time.Duration
	factor, jitter float64
}

// wait is the pause after the n-th failure (from 0); r is random in [0,1).
func (b backoff) wait(n int, r float64) time.Duration {
	d := float64(b.first)
	for range n {
		if d *= b.factor; d >= float64(b.max) {
			d = float64(b.max)
			break
		}
	}
	return time.Duration(d * (1 + b.jitter*(2*r-1)))
}

// failure says what a failed try means for the next one.
type failure int

const (
	answered failure = iota // the server has spoken: the error is final
	unsent                  // the call did not reach the server
	lost                    // the call may have reached the server
	broken                  // the server failed inside
	later                   // the server promises that nothing was recorded, and asks to be asked again
)

// failureOf classifies the error of one try.
func failureOf(err error) failure {
	if s, ok := errors.AsType[*StatusError](err); ok {
		switch s.Code {
		case http.StatusServiceUnavailable:
			if s.Detail == "" { // a proxy that has no server to ask
				return unsent
			}
			return later
		case http.StatusBadGateway, http.StatusGatewayTimeout:
			return lost
		case http.StatusInternalServerError:
			return broken
		}
		return answered
	}
	if _, ok := errors.AsType[*ConnectError](err); ok {
		if dialed(err) {
			return unsent
		}
		return lost
	}
	return answered
}

// retry decides whether a call is sent again after its attempt-th failure in a
// row (from 1), and after which pause. elapsed is the time since the server was
// last known to answer. idempotent calls may be sent twice.
func retry(err error, attempt int, elapsed, patience time.Duration, idempotent bool) (pause time.Duration, again bool) {
	b, limit := outageBackoff, patience
	switch failureOf(err) {
	case answered:
		return 0, false
	case later:
		b, limit = laterBackoff, laterTotal
	case broken:
		if !idempotent || attempt >= serverFailures {
			return 0, false
		}
		b, limit = brokenBackoff, laterTotal
	case lost:
		if !idempotent {
			return 0, false
		}
	}
	pause = b.wait(attempt-1, 0.5)
	return pause, elapsed+pause <= limit
}

// outage is the trouble of one call, from the first failure until the server
// answers.
type outage struct {
	c     *Client
	since time.Time // when the server was last known to answer; zero: it answers
	tries int
	maybe bool // a try may have reached the server
	wait  *wait
}

// again waits for the time of the next try, or returns the error with which the
// call ends.
func (o *outage) again(ctx context.Context, err error, idempotent bool) error {
	if ctx.Err() != nil {
		o.over()
		return ctx.Err()
	}
	if o.since.IsZero() {
		o.since = time.Now()
		if s, ok := errors.AsType[*silentError](err); ok {
			o.since = o.since.Add(-s.quiet)
		}
	}
	o.tries++
	kind := failureOf(err)
	o.maybe = o.maybe || kind == lost
	pause, again := retry(err, o.tries, time.Since(o.since), o.c.patience, idempotent)
	if !again {
		tried := time.Since(o.since)
		o.over()
		return gaveUp(err, kind, tried, o.c.patience)
	}
	if kind == later {
		o.c.notify(err.Error() + " Trying again…")
	} else {
		o.hold(reason(err))
	}
	if refused(err) && time.Since(o.since) >= revivePause {
		if err := o.c.reviveServer(ctx); err != nil {
			o.over()
			return err
		}
	}
	// Spread the tries of many clients, and keep to what was decided on average.
	spread := time.Duration(float64(pause) * 0.2 * (2*rand.Float64() - 1))
	if err := sleep(ctx, pause+spread); err != nil {
		o.over()
		return err
	}
	return nil
}

// gaveUp adds to the last error how long the server was tried.
func gaveUp(err error, kind failure, tried, patience time.Duration) error {
	if kind != unsent && kind != lost || tried < time.Second || tried < patience/2 {
		return err
	}
	if _, ok := errors.AsType[*silentError](err); ok {
		return err // says so
	}
	return fmt.Errorf("%w (tried for %v)", err, tried.Round(time.Second))
}

// hold reports that the call waits, and why.
func (o *outage) hold(reason string) {
	if o.wait == nil || !o.wait.because(reason) {
		o.wait = o.c.waits.begin(o.since, reason)
	}
}

// connected stops reporting: the server takes connections again. Whether it
// answers is seen next.
func (o *outage) connected() {
	if o.wait != nil {
		o.wait.end()
		o.wait = nil
	}
}

// over ends the outage.
func (o *outage) over() {
	o.connected()
	o.since, o.tries = time.Time{}, 0
}

// reviveServer calls [Options.Revive], at most once in reviveEvery and for one
// call at a time.
func (c *Client) reviveServer(ctx context.Context) error {
	if c.revive == nil {
		return nil
	}
	c.reviving.Lock()
	defer c.reviving.Unlock()
	if !c.revived.IsZero() && time.Since(c.revived) < reviveEvery {
		return nil
	}
	c.revived = time.Now()
	return c.revive(ctx)
}

// dialed reports whether an error is that no connection was made, so that the
// call cannot have reached the server.
func dialed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// reason is why the server does not answer, in a few words.
func reason(err error) string {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return fmt.Sprintf("%d %s", s.Code, http.StatusText(s.Code))
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return "no answer"
	}
	switch {
	case refused(err):
		return "connection refused"
	case errors.As(err, new(*silentError)):
		return "no answer"
	case errors.Is(err, errRetry):
		return "it restarts"
	case reset(err):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost"
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return d.Err
	}
	if c, ok := errors.AsType[*ConnectError](err); ok {
		err = c.Err
	}
	return plainCause(err).Error()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
