package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type thing struct {
	Name string `json:"name"`
}

// serve answers calls with f.
func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func TestACallCarriesItsBodyAndCredentials(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"name": %q}`, strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)}, " "))
	})
	c := New(Options{Cloud: "Test", Endpoint: url + "/v1/", Authorize: Bearer("secret")})
	defer c.Close()
	got, err := Do[thing](t.Context(), c, http.MethodPost, "/things?x=1", thing{"a"})
	if want := `POST /v1/things?x=1 Bearer secret application/json {"name":"a"}`; err != nil || got.Name != want {
		t.Errorf("%q, %v; want %q", got.Name, err, want)
	}
}

func TestFormsAndTokens(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"name": %q}`, strings.Join([]string{r.URL.String(), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"), r.Header.Get("X-Odd"), string(body)}, " "))
	})
	c := New(Options{Endpoint: url, TokenHeader: "Idempotency-Key"})
	defer c.Close()
	got, err := Send[thing](t.Context(), c, Call{Method: "POST", Path: "/things", Query: map[string][]string{"q": {"a b"}}, Header: http.Header{"X-Odd": {"1"}},
		Body: map[string][]string{}, Token: "t1"})
	if want := "/things?q=a+b application/json t1 1 {}"; err != nil || got.Name != want {
		t.Errorf("%q, %v; want %q", got.Name, err, want)
	}
	got, err = Send[thing](t.Context(), c, Call{Method: "POST", Path: "/things", Body: neturl.Values{"a": {"1&2"}}})
	if want := "/things application/x-www-form-urlencoded   a=1%262"; err != nil || got.Name != want {
		t.Errorf("%q, %v; want %q", got.Name, err, want)
	}
}

func TestWaysToAuthorize(t *testing.T) {
	for want, with := range map[string]func(*http.Request) error{
		"Bearer k": Bearer("k"),
		"key k":    Header("Authorization", "key k"),
		`of {"name":"a"}`: Sign(func(r *http.Request, body []byte) error {
			r.Header.Set("Authorization", "of "+string(body))
			return nil
		}),
	} {
		c := New(Options{Authorize: with, Endpoint: serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"name": %q}`, r.Header.Get("Authorization")+string(body))
		})})
		if got, err := Do[thing](t.Context(), c, "POST", "/", thing{"a"}); err != nil || got.Name != want+`{"name":"a"}` {
			t.Errorf("%q, %v; want %q", got.Name, err, want)
		}
		c.Close()
	}
}

func TestTheReplyHasHeadersAndStatus(t *testing.T) {
	status := 0
	c := New(Options{Endpoint: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/operations/1")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
	})})
	defer c.Close()
	for _, status = range []int{http.StatusAccepted, http.StatusForbidden} {
		var reply Reply
		_, err := Send[any](t.Context(), c, Call{Method: "POST", Path: "/", Reply: &reply})
		if (err != nil) != (status == http.StatusForbidden) || reply.Status != status || reply.Header.Get("Location") != "/operations/1" || reply.RetryAfter() != 7*time.Second {
			t.Errorf("%+v, %v", reply, err)
		}
	}
}

// A key has one pace, whichever others are used in between.
func TestAKeyHasOneClient(t *testing.T) {
	var all Clients
	made := 0
	options := func() Options { made++; return Options{} }
	a := all.For("a", options)
	if b := all.For("b", options); a == b || all.For("a", options) != a || made != 2 {
		t.Errorf("%d clients were made", made)
	}
	for i := range 2 * mostClients {
		all.For(fmt.Sprint(i), options)
	}
	if len(all.of) > mostClients {
		t.Errorf("%d clients are kept", len(all.of))
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, began := 0, time.Now()
		got, err := Await(t.Context(), 3*time.Second, func(context.Context) (string, bool, error) {
			asked++
			return fmt.Sprint("ask ", asked), asked == 4, nil
		})
		if took := time.Since(began); err != nil || got != "ask 4" || took != 6*time.Second { // 1 + 2 + 3
			t.Errorf("%q, %v after %v", got, err, took)
		}
		broken := errors.New("broken")
		if _, err := Await(t.Context(), time.Second, func(context.Context) (int, bool, error) { return 0, false, broken }); err != broken {
			t.Error(err)
		}
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		if _, err := Await(ctx, time.Second, func(ctx context.Context) (int, bool, error) {
			<-ctx.Done() // in the middle of a call
			return 0, false, fmt.Errorf("no answer: %w", ctx.Err())
		}); err != late {
			t.Error(err)
		}
	})
}

// What a server says of its own fault proves nothing, and is what people ask for.
func TestWhatAServerSaysOfItsFaultIsTold(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"code":"global/unknown","message":"ask support"}}`: "status 500: global/unknown: ask support",
		"upstream timed out": "status 500: upstream timed out",
		"<html>x</html>":     "status 500",
		"":                   "status 500",
	} {
		if got := broken(500, []byte(body)).Error(); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}

func TestAnEmptyAnswerIsOne(t *testing.T) {
	c := New(Options{Endpoint: serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })})
	defer c.Close()
	if got, err := Do[thing](t.Context(), c, http.MethodDelete, "/things/a", nil); err != nil || got != (thing{}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCredentialsAreSentToNobodyElse(t *testing.T) {
	var elsewhere atomic.Bool
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) })
	c := New(Options{Cloud: "Test", Endpoint: serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusFound) }), Authorize: Bearer("secret")})
	defer c.Close()
	_, err := Do[thing](t.Context(), c, http.MethodGet, "/things", nil)
	var lost *NoAnswerError
	if !errors.As(err, &lost) || elsewhere.Load() {
		t.Errorf("%v, followed: %v", err, elsewhere.Load())
	}
}

// Only an answer of the API itself proves that a call had no effect.
func TestWhatAnAnswerProves(t *testing.T) {
	for _, tt := range []struct {
		status  int
		body    string
		refusal string // "": the call may have had its effect
	}{
		{400, `{"error": {"code": "full", "message": "No room."}}`, "full: No room"},
		{409, `{"code": 17, "message": "taken"}`, "17: taken"},
		{404, `{"error": "no such thing"}`, "no such thing"},
		{400, `{"error": {"code": "odd"}}`, "odd"},
		{400, `{"code": 400, "status": "INVALID_ARGUMENT", "message": "no such type"}`, "INVALID_ARGUMENT: no such type"},
		{422, `{"title": "Unprocessable Entity", "status": 422, "detail": "no name"}`, "Unprocessable Entity: no name"},
		{401, `<html>`, "status 401"},
		{403, `{}`, "status 403"},
		{400, `<html>`, ""},
		{404, `{}`, ""},
		{400, `{"error": 7}`, ""},
		{400, `{"error": []}`, ""},
		{500, `{"error": {"code": "internal", "message": "oh"}}`, ""},
		{503, `{"code": "later"}`, ""},
		{200, `{"name": 7}`, ""},
		{200, `nonsense`, ""},
	} {
		c := New(Options{Cloud: "Test", Endpoint: serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		})})
		_, err := Do[thing](t.Context(), c, http.MethodPost, "/things", thing{"a"})
		var refused *Error
		var lost *NoAnswerError
		switch {
		case errors.As(err, &lost):
			if tt.refusal != "" || !strings.HasPrefix(err.Error(), "no answer from Test: ") {
				t.Errorf("%d %s: %v", tt.status, tt.body, err)
			}
		case !errors.As(err, &refused) || refused.Error() != tt.refusal || refused.Status != tt.status:
			t.Errorf("%d %s: %v, want %q", tt.status, tt.body, err, tt.refusal)
		}
		c.Close()
	}
}

func TestNobodyThereIsNoAnswer(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	c := New(Options{Cloud: "Test", Endpoint: s.URL})
	_, err := Do[thing](t.Context(), c, http.MethodGet, "/things?token=secret", nil)
	var lost *NoAnswerError
	if !errors.As(err, &lost) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	slow := New(Options{Cloud: "Test", Timeout: 20 * time.Millisecond, Endpoint: serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
	if _, err := Do[thing](t.Context(), slow, http.MethodGet, "/things", nil); !errors.As(err, &lost) {
		t.Errorf("a call that takes too long: %v", err)
	}
}

// A call that was one too many is made again, after as long as the API wants.
func TestCallsThatAreOneTooManyAreMadeAgain(t *testing.T) {
	var calls atomic.Int32
	busy := func(times int32) http.HandlerFunc {
		calls.Store(0)
		return func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) <= times {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			io.WriteString(w, `{"name": "a"}`)
		}
	}
	c := New(Options{Endpoint: serve(t, busy(1))})
	if got, err := Do[thing](t.Context(), c, http.MethodPost, "/", nil); err != nil || got.Name != "a" || calls.Load() != 2 {
		t.Errorf("%v, %v after %d calls", got, err, calls.Load())
	}
	c = New(Options{Endpoint: serve(t, busy(9)), Busy: -1})
	var refused *Error
	if _, err := Do[thing](t.Context(), c, http.MethodPost, "/", nil); !errors.As(err, &refused) || refused.Status != 429 || calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c = New(Options{Endpoint: serve(t, busy(9)), Refusal: func(status int, header http.Header, body []byte) error {
		cancel() // once there is an answer
		return ReadError(status, header, body)
	}})
	if _, err := Do[thing](ctx, c, http.MethodPost, "/", nil); !errors.As(err, &refused) || refused.Status != 429 {
		t.Errorf("a caller who leaves hears what was said last: %v", err)
	}
}

func TestHowLongTheAPIWantsUsToStayAway(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		try   int
		want  time.Duration
	}{{7 * time.Second, 3, 7 * time.Second}, {time.Hour, 0, 30 * time.Second}, {0, 0, time.Second}, {0, 2, 4 * time.Second}, {0, 90, 30 * time.Second}} {
		if got := later(tt.after, tt.try); got != tt.want {
			t.Errorf("%v, try %d: %v, want %v", tt.after, tt.try, got, tt.want)
		}
	}
}

func TestCallsKeepThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{paces: []Pace{{Method: "POST", Path: "/launch", Every: 12 * time.Second}, {Every: time.Second, Burst: 3}}}
		took := func(method, path string) time.Duration {
			began := time.Now()
			if err := p.wait(t.Context(), method, path); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		for _, step := range []struct {
			method, path string
			want         time.Duration
		}{
			{"POST", "/launch", 0}, {"POST", "/launch", 12 * time.Second},
			{"GET", "/launch", 0}, {"POST", "/keys", 0}, // what was saved up: a launch is a call, too
			{"GET", "/", time.Second}, {"GET", "/", time.Second}, {"GET", "/", time.Second},
		} {
			if got := took(step.method, step.path); got != step.want {
				t.Errorf("%s %s waited %v, want %v", step.method, step.path, got, step.want)
			}
		}
		time.Sleep(time.Hour)
		for i, want := range []time.Duration{0, 0, 0, time.Second} {
			if got := took("GET", "/"); got != want {
				t.Errorf("after an hour, call %d waited %v, want %v", i, got, want)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("somebody left")
		cancel(left)
		if err := p.wait(ctx, "GET", "/"); err != left {
			t.Error(err)
		}
	})
}

func TestAllPagesAreRead(t *testing.T) {
	pages := map[string][]string{"": {"a", "b"}, "2": {"c"}, "3": nil}
	next := map[string]string{"": "2", "2": "3"}
	got, err := All(t.Context(), func(_ context.Context, token string) ([]string, string, error) { return pages[token], next[token], nil })
	if err != nil || strings.Join(got, "") != "abc" {
		t.Errorf("%v, %v", got, err)
	}
	broken := errors.New("broken")
	got, err = All(t.Context(), func(_ context.Context, token string) ([]string, string, error) {
		if token == "2" {
			return []string{"c"}, "", broken
		}
		return []string{"a"}, "2", nil
	})
	if got != nil || err != broken {
		t.Errorf("half a list: %v, %v", got, err)
	}
	if _, err = All(t.Context(), func(_ context.Context, token string) ([]string, string, error) { return nil, "1", nil }); err == nil {
		t.Error("a list without end")
	}
}

func TestTheLogHasNoSecrets(t *testing.T) {
	var text strings.Builder
	c := New(Options{Cloud: "Test", Authorize: Bearer("secret-token"), Log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Endpoint: serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"name":"secret-answer"}`) })})
	defer c.Close()
	if _, err := Do[thing](t.Context(), c, http.MethodPost, "/things?key=secret-query", thing{"secret-body"}); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "method=POST path=/things status=200") || strings.Contains(got, "secret") {
		t.Error(got)
	}
}

func TestAnAnswerThatIsNoJSON(t *testing.T) {
	c := New(Options{Cloud: "Test", Endpoint: "http://test", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 202, Body: io.NopCloser(strings.NewReader("i-1"))}, nil
	})})
	if id, err := Do[Text](t.Context(), c, "POST", "/x", nil); id != "i-1" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	var lost *NoAnswerError
	if _, err := Do[string](t.Context(), c, "POST", "/x", nil); !errors.As(err, &lost) {
		t.Error(err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A token is asked for once, and again before it ends; one that was refused is not kept.
func TestTokensThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, refuse := 0, true
		authorize := Tokens(func(context.Context) (string, time.Time, error) {
			if refuse {
				return "", time.Time{}, errors.New("no")
			}
			asked++
			return fmt.Sprint("t", asked), time.Now().Add(time.Hour), nil
		})
		use := func() (string, error) {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://test", nil)
			err := authorize(r)
			return r.Header.Get("Authorization"), err
		}
		if _, err := use(); err == nil {
			t.Error("it was authorized")
		}
		refuse = false
		for _, want := range []string{"Bearer t1", "Bearer t1"} {
			if got, err := use(); got != want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		time.Sleep(time.Hour - 30*time.Second)
		if got, err := use(); got != "Bearer t2" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, _ := http.NewRequestWithContext(ctx, "GET", "http://test", nil)
		_ = authorize(r) // returns
	})
}

func TestPagesWithCursors(t *testing.T) {
	pages := map[string]string{"": `{"data": [1, 2], "at": "x y"}`, "x y": `{"data": [3], "at": null}`, "bad": `{"data": 1}`}
	c := New(Options{Cloud: "Test", Endpoint: "http://test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("limit") != "2" {
			t.Error(r.URL)
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(pages[r.URL.Query().Get("at")]))}, nil
	})})
	query := neturl.Values{"limit": {"2"}}
	if got, err := DataPages[int](t.Context(), c, "/things", "at", query); err != nil || !slices.Equal(got, []int{1, 2, 3}) || len(query) != 1 {
		t.Errorf("%v, %v, %v", got, err, query)
	}
	query.Set("at", "bad")
	var lost *NoAnswerError
	if _, err := DataPages[int](t.Context(), c, "/things", "at", query); !errors.As(err, &lost) {
		t.Error(err)
	}
}

// Where the next page begins may be said deep inside, and by the whole URL of the page.
func TestWhereTheNextPageBegins(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"b": "x:y"}}`: "x:y", `{"a": {"b": "https://api.example/things?limit=2&at=7"}}`: "7", `{"a": {"b": null}}`: "", `{"a": null}`: "", `{}`: "", `{"a": {"b": "https://api.example/things"}}`: "",
	} {
		var page map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		if got, err := cursorAt(page, "a.b", "at"); got != want || err != nil {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"a": 1}`, `{"a": {"b": 1}}`, `{"a": {"b": "://"}}`} {
		var page map[string]json.RawMessage
		_ = json.Unmarshal([]byte(text), &page)
		if got, err := cursorAt(page, "a.b", "at"); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// A call to another server than the cloud's says which host it was meant for, also to what
// signs it.
func TestTheHostOfACall(t *testing.T) {
	got := ""
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Host + " " + r.Header.Get("Signed") }))
	defer s.Close()
	c := New(Options{Endpoint: s.URL, Host: "eu.api.example", Authorize: Sign(func(r *http.Request, _ []byte) error {
		r.Header.Set("Signed", r.Host)
		return nil
	})})
	if _, err := Do[any](t.Context(), c, "GET", "/x", nil); err != nil || got != "eu.api.example eu.api.example" {
		t.Errorf("%q, %v", got, err)
	}
}

// A list that says how long it is ends there, whatever its pages have; one that is shorter is
// none.
func TestCountedLists(t *testing.T) {
	c := New(Options{Cloud: "X"})
	total := func(n int) *int { return &n }
	all, err := Counted(t.Context(), c, func(_ context.Context, have int) ([]int, *int, error) { return []int{have, have + 1}, total(5), nil })
	if err != nil || !slices.Equal(all, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("%v, %v", all, err)
	}
	for name, page := range map[string]func(context.Context, int) ([]int, *int, error){
		"shorter": func(_ context.Context, have int) ([]int, *int, error) {
			return make([]int, max(2-have, 0)), total(3), nil
		},
		"of no length": func(context.Context, int) ([]int, *int, error) { return []int{1}, nil, nil },
	} {
		var lost *NoAnswerError
		if all, err := Counted(t.Context(), c, page); !errors.As(err, &lost) {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}
