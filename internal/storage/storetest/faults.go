package storetest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
)

// Faults stand between a driver and a server and do what networks and stores do: they
// cut connections before a request, in it and in its answer, lose answers to what had
// its effect, and answer with trouble. It is for stores whose API answers in XML.
type Faults struct {
	// Next is the server.
	Next http.Handler
	// Rate is how many of a hundred requests something is wrong with.
	Rate int
	// Pick, if it is not nil, chooses what is wrong with a request in place of chance.
	Pick func(r *http.Request) Fault

	mu    sync.Mutex
	rand  *rand.Rand
	count map[Fault]int
}

// A Fault is what is wrong with a request.
type Fault int

// The faults.
const (
	None     Fault = iota
	Refused        // the connection is cut before the request has an effect
	Half           // it is cut within the request
	Lost           // the request has its effect, and its answer is lost
	Cut            // the answer is cut
	Trouble        // HTTP 500
	SlowDown       // HTTP 503
	Denied         // HTTP 403
)

// NewFaults are random, by a seed, and temporary ones only.
func NewFaults(seed uint64, rate int, next http.Handler) *Faults {
	return &Faults{Next: next, Rate: rate, rand: rand.New(rand.NewPCG(seed, 1))}
}

// Count is how often something was wrong.
func (f *Faults) Count() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[Fault]int{}
	for k, n := range f.count {
		out[k] = n
	}
	return out
}

func (f *Faults) pick(r *http.Request) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := None
	switch {
	case f.Pick != nil:
		fault = f.Pick(r)
	case f.rand.IntN(100) < f.Rate:
		fault = Refused + Fault(f.rand.IntN(int(Denied-Refused)))
	}
	if f.count == nil {
		f.count = map[Fault]int{}
	}
	f.count[fault]++
	return fault
}

func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := f.pick(r)
	switch fault {
	case None:
		f.Next.ServeHTTP(w, r)
		return
	case Refused:
		panic(http.ErrAbortHandler)
	case Half:
		io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	case Trouble:
		refuse(w, http.StatusInternalServerError, "InternalError")
		return
	case SlowDown:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return
	case Denied:
		refuse(w, http.StatusForbidden, "AccessDenied")
		return
	}
	answer := httptest.NewRecorder()
	f.Next.ServeHTTP(answer, r)
	if fault == Lost {
		panic(http.ErrAbortHandler)
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	body := answer.Body.Bytes()
	if w.Header().Get("Content-Length") == "" && len(body) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(answer.Code)
	io.Copy(w, bytes.NewReader(body[:len(body)/2]))
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}
