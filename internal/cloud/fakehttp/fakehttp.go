// Package fakehttp makes servers for tests that are a cloud's HTTP API: the face of the
// cloud in package model. What all of them do is here once, so that a fake of one cloud
// holds its tables and its words:
//
//   - [API] is the table of the cloud: its regions and types, credentials, limits, and the
//     words for refusals. [Fake.Route] adds calls, whose bodies a [Schema] checks;
//   - machines.go makes machines, finds, lists and turns them ([Fake.Create], [Fake.InPath],
//     [Fake.Existing], [Fake.Turn]), and knows which were switched on again, which failed
//     for a lack of room, and what they were made with;
//   - things.go keeps what clouds have besides machines, a [Kind] for each: keys, scripts,
//     networks, firewalls, records of operations;
//   - lists.go are the parts of lists ([Pages]) and their filters ([Fitting]);
//   - hooks.go makes the cloud misbehave, for package cloudtest; tokens.go hands out tokens;
//     grpc.go lets the same calls come as gRPC.
package fakehttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Dict is an object of JSON.
type Dict = map[string]any

// API is what a cloud's API looks like.
type API struct {
	Prefix  string // of all paths
	Regions []string
	Types   []model.Type // their prices are those of machines that can be taken back, too
	ID      func(n uint64) string
	Login   func(r *http.Request) bool // tells good credentials
	Words   map[fluffyapi.Code]Word    // for refusals, besides the usual statuses
	// Error is the body of a refusal; nil: there is none, as for 429 on some clouds.
	Error    func(status int, code, message string) any
	Wrap     func(data any) any // around every other answer; nil: nothing
	Limits   []Limit
	Protects string            // the kind of thing that protects machines: what [Fake.Conflict] is about
	Named    string            // the field of a machine's body that is its id, and unique; "": ids are the cloud's
	OffCosts bool              // machines that are off cost money, too
	AtOnce   bool              // machines end with the call that ends them
	Linger   time.Duration     // how long ended machines are known; 0: an hour
	Noun     string            // what refusals call a machine
	Unknown  string            // the message about a machine that does not exist; "": one with Noun and the id
	Gone     []fluffyapi.State // in which machines are not known any more, besides Terminated
	Records  []string          // kinds of things that are no property, such as operations: no inventory has them
	// Remembers says that paths can name machines that are gone, as long as they are known.
	Remembers bool
	// FailsLater says that a machine for which there is no room is made, and is [Failed].
	FailsLater bool
	// Opened are the ports of a machine that the world may reach; nil: nobody asks.
	Opened func(id string) []string

	// Zones are those of a region; nil: there is one, which the cloud does not name.
	Zones func(region string) []string
	// Place is the zone or region, and the model's type, of an offer; nil: its own.
	Place func(o cloud.Offer) (place, instanceType string)
	// Is reports that an id of a provider's is that machine; nil: only its id is.
	Is func(m model.Machine, id string) bool
	// Before answers a call before anything else looks at it; nil: nothing does.
	Before func(r *http.Request) *Reply
	// GRPC translates calls that come as gRPC; nil: none does.
	GRPC *GRPC
	// Refusal is the whole answer to a call of the operation op that is refused; nil,
	// or none: Words and Error make it.
	Refusal func(r *http.Request, op string, e *fluffyapi.Error) *Reply
}

// Reply is an answer that is not just 200 and a body. A handler may return it as its
// data or as its error.
type Reply struct {
	Status int
	Header map[string]string
	Body   any // nil: none
}

func (r *Reply) Error() string { return fmt.Sprintf("%d: %v", r.Status, r.Body) }

// frozen is the answer as it is now: what it is made of may change before it is written.
func (r *Reply) frozen() *Reply {
	if _, ok := r.Body.(Text); ok || r.Body == nil {
		return r
	}
	return &Reply{Status: r.Status, Header: r.Header, Body: json.RawMessage(mustJSON(r.Body))}
}

// Write answers with it.
func (r *Reply) Write(w http.ResponseWriter) {
	for name, value := range r.Header {
		w.Header().Set(name, value)
	}
	if r.Body == nil {
		w.WriteHeader(r.Status)
		return
	}
	plain, ok := r.Body.(Text)
	text := []byte(plain)
	if !ok {
		text = mustJSON(r.Body)
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(text)
}

// Word is what a cloud says for a code of the model's.
type Word struct {
	Status  int
	Code    string
	Message string // instead of the model's; "": that
	Again   string // the header Retry-After
}

// usual are the words of clouds that have none of their own.
var usual = map[fluffyapi.Code]Word{
	fluffyapi.Unauthorized: {Status: http.StatusUnauthorized}, fluffyapi.Forbidden: {Status: http.StatusForbidden}, fluffyapi.NotFound: {Status: http.StatusNotFound},
	fluffyapi.Throttled: {Status: http.StatusTooManyRequests}, fluffyapi.Internal: {Status: http.StatusInternalServerError},
}

// Coded is a message with the code before it, if there is one: for APIs that have no place
// for codes.
func Coded(code, message string) string {
	if code == "" {
		return message
	}
	return code + ": " + message
}

// Bearer and Header tell calls that carry a key: as a token, and in a header of its own.
func Bearer(key string) func(*http.Request) bool { return Header("Authorization", "Bearer "+key) }

func Header(name, key string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Header.Get(name) == key }
}

// Host is the host that a call is for.
func Host(r *http.Request) string { return cmp.Or(r.Host, r.URL.Host) }

// Answer answers every call the same.
func Answer(v any) Handler { return func(*http.Request, Dict) (any, error) { return v, nil } }

// Limit is how often calls may be made.
type Limit struct {
	Method, Path string // of the calls, Path being how they begin behind the prefix; "": all
	Every        time.Duration
	Calls        int // in any time of that length; 0: 1
	Saved        int // if not 0: so many at once instead, and one more after each such time
}

// meter counts the calls of one limit.
type meter struct {
	calls []time.Time   // those that still count, oldest first
	debt  time.Duration // of saved calls, until they are all there again
	at    time.Time     // when that was right
}

// room reports whether a call is within the limit now, and forgets what no longer counts.
func (m *meter) room(l Limit, now time.Time) bool {
	if l.Saved > 0 {
		m.debt, m.at = max(0, m.debt-now.Sub(m.at)), now
		return m.debt+l.Every <= time.Duration(l.Saved)*l.Every
	}
	for len(m.calls) > 0 && now.Sub(m.calls[0]) >= l.Every {
		m.calls = m.calls[1:]
	}
	return len(m.calls) < max(l.Calls, 1)
}

func (m *meter) add(l Limit, now time.Time) {
	if l.Saved > 0 {
		m.debt += l.Every
	} else {
		m.calls = append(m.calls, now)
	}
}

// Fake is a whole cloud. Its methods may be called concurrently.
type Fake struct {
	Cloud *model.Cloud
	Owner *model.Account // by whom effects are: faults do not hit it

	api      API
	mux      http.ServeMux
	caller   *model.Account
	restored atomic.Int64
	process  cloudtest.Death // of the process that calls
	raised   atomic.Uint64   // bits of what prices are multiplied with; 0: nothing

	mu      sync.Mutex // held by handlers
	serial  uint64
	limited bool
	meters  map[Limit]*meter
	over    int
	boot    time.Duration
	bare    bool
	things  map[string][]Dict

	restarted map[string]bool // machines that were switched on after they had been off
	failed    []fluffyapi.Instance
}

// Text is an answer that is no JSON, or the body of one.
type Text string

// Handler answers a call whose body fits its schema, with no content for nil. Handlers
// run one at a time.
type Handler func(r *http.Request, in Dict) (any, error)

// New returns a cloud that has nothing but capacity.
func New(api API) *Fake {
	cfg := model.Config{PageSize: math.MaxInt, ID: api.ID, Linger: api.Linger}
	for _, t := range api.Types {
		t.SpotPrice = t.Price // only such machines can be taken back
		cfg.Types = append(cfg.Types, t)
	}
	for _, region := range api.Regions {
		cfg.Regions = append(cfg.Regions, model.Region{Name: region, Zones: api.zones(region)})
	}
	c, err := model.New(cfg)
	must(err)
	f := &Fake{Cloud: c, Owner: c.Account("team", "owner"), caller: c.Account("caller", "owner"), api: api, things: map[string][]Dict{}, meters: map[Limit]*meter{}, restarted: map[string]bool{}}
	f.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { f.refuse(w, r, "", Missing(r.Method+" "+r.URL.Path)) })
	f.Restore()
	return f
}

func zone(region string) string { return region + "-a" } // the model's only one there, if the cloud names none

// zones are those of a place: of a region, or the zone itself.
func (a *API) zones(place string) []string {
	switch {
	case !slices.Contains(a.Regions, place):
		return []string{place}
	case a.Zones == nil:
		return []string{zone(place)}
	}
	return a.Zones(place)
}

// Route answers calls of the operation op, as faults know it.
func (f *Fake) Route(method, path, op string, s Schema, do Handler) {
	f.RouteBy(method, path, func(*http.Request, Dict) string { return op }, s, do)
}

// RouteBy answers calls that are several operations: op reports which, by a body that may
// fit no schema.
func (f *Fake) RouteBy(method, path string, op func(*http.Request, Dict) string, s Schema, do Handler) {
	f.Handle(method+" "+f.api.Prefix+path, op, s, do)
}

// Handle is RouteBy for a pattern of [http.ServeMux].
func (f *Fake) Handle(pattern string, operation func(*http.Request, Dict) string, s Schema, do Handler) {
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // first: only after the body is it noticed that a caller leaves
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body)) // for handlers
		op := ""
		lost, err := false, f.enter(r)
		if err == nil {
			var in Dict
			_ = json.Unmarshal(body, &in)
			op = operation(r, in)
			before := f.restored.Load()
			if lost, err = f.caller.Enter(r.Context(), op); before != f.restored.Load() {
				panic(http.ErrAbortHandler) // it hung, and its caller may have left
			}
		}
		var in Dict
		if err == nil && s != nil {
			in, err = s.Read(body)
		}
		var out []byte
		if err == nil {
			out, err = f.act(r, in, do)
		}
		e, reply := (*fluffyapi.Error)(nil), (*Reply)(nil)
		switch {
		case errors.As(err, &e):
			f.refuse(w, r, op, e)
		case errors.As(err, &reply) && !lost:
			reply.Write(w)
		case err != nil || lost:
			panic(http.ErrAbortHandler)
		case out == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(out)
		}
	})
}

// act runs do under the fake's lock and returns its answer as the cloud writes it.
func (f *Fake) act(r *http.Request, in Dict, do Handler) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock() // also when do panics
	data, err := do(r, in)
	if reply, ok := data.(*Reply); ok && err == nil {
		err = reply.frozen()
	} else if f.api.Wrap != nil {
		data = f.api.Wrap(data)
	}
	if text, ok := data.(Text); ok {
		return []byte(text), err
	} else if data == nil {
		return nil, err
	}
	out, _ := json.Marshal(data)
	return out, err
}

func (f *Fake) refuse(w http.ResponseWriter, r *http.Request, op string, e *fluffyapi.Error) {
	if f.api.Refusal != nil {
		if reply := f.api.Refusal(r, op, e); reply != nil {
			reply.Write(w)
			return
		}
	}
	word, ok := f.api.Words[e.Code]
	if !ok {
		word, ok = usual[e.Code]
	}
	if !ok {
		word = Word{Status: http.StatusBadRequest, Code: string(e.Code)}
	}
	message := cmp.Or(word.Message, e.Message)
	if word.Again != "" {
		w.Header().Set("Retry-After", word.Again)
	}
	if f.api.Zones == nil {
		for _, region := range f.api.Regions { // of which the cloud knows no zones
			message = strings.ReplaceAll(message, zone(region), region)
		}
	}
	body := f.api.Error(word.Status, word.Code, message)
	if body == nil {
		http.Error(w, "too many", word.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(word.Status)
	_ = json.NewEncoder(w).Encode(body)
}

// enter asks for the credentials, and keeps the limits.
func (f *Fake) enter(r *http.Request) error {
	if !f.api.Login(r) {
		return fluffyapi.Errorf(fluffyapi.Unauthorized, "the API key is missing or wrong")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	fit, room := map[Limit]*meter{}, true
	for _, l := range f.api.Limits {
		if (l.Method == "" || l.Method == r.Method) && strings.HasPrefix(strings.TrimPrefix(r.URL.Path, f.api.Prefix), l.Path) {
			if f.meters[l] == nil {
				f.meters[l] = &meter{at: now}
			}
			fit[l] = f.meters[l]
			room = fit[l].room(l, now) && room
		}
	}
	if f.limited && !room {
		f.over++
		return fluffyapi.Errorf(fluffyapi.Throttled, "one too many")
	}
	for l, m := range fit {
		m.add(l, now)
	}
	return nil
}

func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.process.Serve(http.HandlerFunc(f.serve), w, r)
}

func (f *Fake) serve(w http.ResponseWriter, r *http.Request) {
	if f.api.GRPC != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		f.api.GRPC.serve(http.HandlerFunc(f.serveJSON), w, r)
		return
	}
	f.serveJSON(w, r)
}

func (f *Fake) serveJSON(w http.ResponseWriter, r *http.Request) {
	if f.api.Before != nil {
		if reply := f.api.Before(r); reply != nil {
			reply.Write(w)
			return
		}
	}
	f.mux.ServeHTTP(w, r)
}

// Locked does something while no handler runs.
func (f *Fake) Locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// Pause is for handlers: others may run meanwhile. It ends early with the call.
func (f *Fake) Pause(r *http.Request, d time.Duration) error {
	f.mu.Unlock()
	defer f.mu.Lock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return r.Context().Err()
	case <-t.C:
		return nil
	}
}

// RoundTrip answers a call without a network, so that time may be virtual.
func (f *Fake) RoundTrip(r *http.Request) (*http.Response, error) { return Serve(f, r) }

// Serve is what a handler answers to a call, without a network. One that aborts it is a connection
// that breaks.
func Serve(h http.Handler, r *http.Request) (resp *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	defer func() {
		switch p := recover(); {
		case p == http.ErrAbortHandler && r.Context().Err() != nil:
			resp, err = nil, r.Context().Err()
		case p == http.ErrAbortHandler:
			resp, err = nil, io.ErrUnexpectedEOF
		case p != nil:
			panic(p)
		}
	}()
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, in)
	return w.Result(), nil
}

// Schema is what a body may hold: for each field a pattern of its JSON, with sorted
// keys and without spaces; "!" before a field says that it is required. Other fields are
// passed over, as most APIs do.
type Schema map[string]string

// Patterns for schemas.
const (
	Char   = `(?:[^"\\]|\\(?:u....|.))`
	String = `"` + Char + `*"`
	Number = `\d+(?:\.\d+)?`
	Filled = `"` + Char + `+"` // a string that is not empty
	Bool   = `(?:true|false)`
	Object = `\{.*\}`
	Key    = `"(?:ssh|ecdsa)-[^ ]+ [^ ]+.*"` // a public one
)

// List is a pattern for a list of what another one fits.
func List(of string) string { return `\[(?:` + of + `(?:,` + of + `)*)?\]` }

// Optional is the schema without what it requires: of bodies that change what others made.
func (s Schema) Optional() Schema {
	out := Schema{}
	for field, pattern := range s {
		out[strings.TrimPrefix(field, "!")] = pattern
	}
	return out
}

// Unknown is a field that the schema does not have, for APIs that pass over none; "":
// there is none.
func (s Schema) Unknown(in Dict) string {
	for _, field := range slices.Sorted(maps.Keys(in)) {
		if s[field] == "" && s["!"+field] == "" {
			return field
		}
	}
	return ""
}

// Read decodes a body that fits.
func (s Schema) Read(body []byte) (in Dict, err error) {
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fluffyapi.Errorf(fluffyapi.Invalid, "the body: %v", err)
	}
	if err := s.Fits(in); err != nil {
		return nil, err
	}
	return in, nil
}

// Fits says why an object does not.
func (s Schema) Fits(in Dict) error {
	for field, pattern := range s {
		name, required := strings.CutPrefix(field, "!")
		v, ok := in[name]
		got, _ := json.Marshal(v)
		if len(got) > 1_000_000 || !ok && required || ok && !regexp.MustCompile(`(?s)^(?:`+pattern+`)$`).Match(got) {
			return fluffyapi.Errorf(fluffyapi.Invalid, "%s: not %.99s", name, got)
		}
	}
	return nil
}

// Missing refuses a call about something that does not exist.
func Missing(what any) *fluffyapi.Error {
	return fluffyapi.Errorf(fluffyapi.NotFound, "%v does not exist", what)
}

// NewID is an id for a thing besides machines.
func (f *Fake) NewID() string {
	f.serial++
	return fmt.Sprintf("f00d%028x", f.serial)
}
