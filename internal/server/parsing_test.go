package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
)

func TestTablesOfUsers(t *testing.T) {
	ann := [3]string{"ann", "pw", "user"}
	for _, c := range []struct {
		name, text string
		rows       [][3]string
		problems   []string // how each begins
		fails      bool
	}{
		{"as exported", "username,password,role\nann,pw,user\n", [][3]string{ann}, nil, false},
		{"from Excel", "\ufeffusername,password,role\r\nann,pw,user\r\n", [][3]string{ann}, nil, false},
		{"columns in another order, and more of them", "role,mail,PASSWORD, Username \nuser,a@b,pw,ann\n", [][3]string{ann}, nil, false},
		{"roles in any case", "username,password,role\nann,pw, USER \n", [][3]string{ann}, nil, false},
		{"no roles", "username,password\nann,pw\n", [][3]string{{"ann", "pw", ""}}, nil, false},
		{"a row that is short", "username,password,role\nann,pw\n", [][3]string{{"ann", "pw", ""}}, nil, false},
		{"a row that is long", "username,password,role\nann,pw,user,more\n", [][3]string{ann}, nil, false},
		{"quotes", "username,password,role\n\"an,n\", \"p\"\"w\",user\n", [][3]string{{"an,n", `p"w`, "user"}}, nil, false},
		{"rows without a name or a password", "username,password,role\n,pw,user\nbob,,user\nann,pw,user\ncy\n", [][3]string{ann},
			[]string{"line 2: ", "line 3: ", "line 5: "}, false},
		{"a row with a stray quote", "username,password,role\nb\"ob,pw,user\nann,pw,user\n", [][3]string{ann}, []string{"parse error on line 2"}, false},
		{"a quote within quotes", "username,password,role\n\"b\"ob,pw,user\nann,pw,user\n", [][3]string{ann}, []string{"parse error on line 2"}, false},
		{"a head and no rows", "username,password,role", nil, nil, false},
		{"nothing", "", nil, nil, true},
		{"no names", "password,role\npw,user\n", nil, nil, true},
		{"no passwords", "username,role\nann,user\n", nil, nil, true},
		{"a head that is no CSV", "user\"name,password\nann,pw\n", nil, nil, true},
	} {
		rows, problems, err := readUsers(c.text)
		begin := slices.EqualFunc(problems, c.problems, strings.HasPrefix)
		if (err != nil) != c.fails || !slices.Equal(rows, c.rows) || !begin && err == nil {
			t.Errorf("%s: %q, %q, %v", c.name, rows, problems, err)
		}
		if err == nil && problems == nil {
			t.Errorf("%s: the problems are null, and a list for clients", c.name)
		}
	}
}

func TestTimesOfQueries(t *testing.T) {
	for text, want := range map[string]int64{ // Unix seconds; -1: refused
		"": -62135596800, "0": 0, "1.5": 1, "1767225600": 1767225600, "6999999999": 6999999999, "7000000000": -1, "-1": -1, "-0": 0,
		"1970-01-01T00:00:00Z": 0, "1969-12-31T23:59:59Z": -1, "2026-01-01T00:00:00Z": 1767225600, "2026-01-01T01:00:00+01:00": 1767225600,
		"2200-12-31T00:00:00Z": 7289568000, "2201-01-01T00:00:00Z": -1, "2026-01-01": -1, "yesterday": -1, "NaN": -1, "1e300": -1,
	} {
		got, problems := queryTime(text, "since")
		if refused := problems != nil; refused != (want == -1) || !refused && got.Unix() != want {
			t.Errorf("%q: %v %v", text, got, problems)
		}
	}
	if at, _ := queryTime("1.25", "since"); at.UnixMilli() != 1250 {
		t.Errorf("parts of a second: %v", at)
	}
}

func TestNumbersAndTruthsOfQueries(t *testing.T) {
	type number struct {
		n           int
		given, good bool
	}
	for text, want := range map[string]number{
		"": {0, false, true}, "0": {0, true, true}, "1": {1, true, true}, "-1": {0, false, false}, "x": {0, false, false}, "1.0": {0, false, false},
	} {
		n, given, problems := queryInt(url.Values{"n": {text}}, "n")
		if got := (number{n, given, problems == nil}); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, absent := range []bool{true, false} {
		for text, want := range map[string]bool{"true": true, "True": true, "1": true, "yes": true, "on": true, "t": true, "y": true,
			"false": false, "False": false, "0": false, "no": false, "off": false, "f": false, "n": false, "": absent} {
			if got, problems := queryBool(url.Values{"b": {text}}, "b", absent); got != want || problems != nil {
				t.Errorf("%q is %v, %v", text, got, problems)
			}
		}
		if got, problems := queryBool(url.Values{"b": {"perhaps"}}, "b", absent); got != absent || len(problems) != 1 {
			t.Errorf("neither true nor false is %v, %v", got, problems)
		}
	}
}

func TestHowALogIsViewed(t *testing.T) {
	const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for _, c := range []struct {
		query, agent string
		want         view
		good         bool
	}{
		{"", "", view{follow: true}, true},
		{"", firefox, view{follow: true, html: true}, true},
		{"", "python-requests/2.32", view{follow: true}, true},
		{"", "x Edge/1", view{follow: true, html: true}, true},
		{"format=auto", firefox, view{follow: true, html: true}, true},
		{"format=console&tail=3&follow=False", firefox, view{tail: 3}, true},
		{"format=plain", firefox, view{follow: true, plain: true}, true},
		{"format=html", "", view{follow: true, html: true}, true},
		{"format=xml", "", view{}, false},
		{"download=a/b%20c.log", firefox, view{follow: true, plain: true, download: "a_b_c.log"}, true},
		{"download=" + strings.Repeat("x", 201), "", view{follow: true, plain: true, download: strings.Repeat("x", 200)}, true},
		{"compress=gz", firefox, view{follow: true, gzip: true}, true},
		{"compress=zip", "", view{}, false},
		{"tail=-1", "", view{follow: true}, true},
		{"tail=x", "", view{}, false},
		{"follow=perhaps", "", view{}, false},
	} {
		r := httptest.NewRequest(get, "/api/stream?"+c.query, nil)
		r.Header.Set("User-Agent", c.agent)
		got, problems := parseView(r)
		if good := problems == nil; good != c.good || good && got != c.want {
			t.Errorf("%q by %q: %+v %v", c.query, c.agent, got, problems)
		}
	}
}

func TestWhichErrorIsWhichStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{requests.ErrShutdown, 503}, {requests.ErrRecording, 503},
		{state.ErrNotFound, 404}, {state.ErrConflict, 409},
		{syscall.ENOSPC, 507},
		{&api.Error{Type: api.ErrClusterDoesNotExist}, 404}, {&api.Error{Type: api.ErrFileNotFound}, 404},
		{&api.Error{Type: api.ErrPermissionDenied}, 403}, {&api.Error{Type: api.ErrValue}, 400}, {&api.Error{}, 400},
		{&requests.QuotaError{}, 429}, {&requests.UnknownError{}, 400}, {&identityError{}, 400},
		{errors.New("anything else"), 500},
	} {
		for _, err := range []error{c.err, fmt.Errorf("doing something: %w", c.err)} {
			if got := statusOf(err); got != c.want {
				t.Errorf("%T %v: %d, want %d", c.err, err, got, c.want)
			}
		}
	}
	for want, err := range map[int]error{404: state.ErrNotFound, 400: &requests.AmbiguousError{}, 500: errors.New("anything else"), 503: requests.ErrShutdown} {
		if got := resolveStatus(err); got != want {
			t.Errorf("an id that is not found for %v: %d, want %d", err, got, want)
		}
	}
}

func TestHowACallEndedInTheAuditLog(t *testing.T) {
	for status, want := range map[int][2]string{
		200: {"SUCCEEDED", ""}, 101: {"SUCCEEDED", ""}, 302: {"SUCCEEDED", ""}, 399: {"SUCCEEDED", ""},
		400: {"FAILED", "Bad Request"}, 403: {"DENIED", "Forbidden"}, 499: {"FAILED", "The caller went away"}, 500: {"FAILED", "Internal Server Error"},
	} {
		if got := [2]string{resultOf(status), detailOf(status)}; got != want {
			t.Errorf("%d: %q, want %q", status, got, want)
		}
	}
}

func TestQuotedTextsAreShortAndPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "“”",
		"a b":                    "“a b”",
		"a\nb\x00c\x1fd\x7fe":    "“a?b?c?d?e”",
		strings.Repeat("x", 80):  "“" + strings.Repeat("x", 80) + "”",
		strings.Repeat("x", 81):  "“" + strings.Repeat("x", 80) + "…”",
		strings.Repeat("x", 500): "“" + strings.Repeat("x", 80) + "…”",
	} {
		if got := quoted(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestPathsAreTakenAsTheyAreOrNotAtAll(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"": "/", "*": "/", "a": "/", "/": "/", "/a": "/a", "/a/": "/a/", "//a": "/a", "/a//b": "/a/b", "/a/./b": "/a/b", "/a/../b/": "/b/", "/..": "/", "/../": "/",
	} {
		if got := cleanPath(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	env := newTestEnv(t)
	for _, path := range []string{"//api/health", "/api/../api/health", "/api//health", "/x/../dashboard/"} {
		if r := env.call(get, path, ""); r.status != http.StatusNotFound {
			t.Errorf("%s: %d %v", path, r.status, r.header)
		}
	}
	for _, path := range []string{"/internal/dashboard/api/health", "/api/health"} {
		if r := env.call(get, path, ""); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

func TestWhereAUsersCallsGo(t *testing.T) {
	type choice struct{ name, source string }
	for _, c := range []struct {
		requested, preferred string
		accessible           string
		want                 choice
	}{
		{"lab", "", "default lab", choice{"lab", "explicit"}},
		{"lab", "lab", "default", choice{"", "permission-denied"}},
		{"", "lab", "default lab", choice{"lab", "preferred"}},
		{"", "lab", "default web", choice{"default", "default-fallback"}},
		{"", "", "default lab", choice{"default", "default-fallback"}},
		{"", "", "lab", choice{"lab", "single-membership"}},
		{"", "default", "lab", choice{"lab", "single-membership"}},
		{"", "", "", choice{"", "no-access"}},
		{"", "", "lab web", choice{"", "ambiguous"}},
		{"", "web", "lab web", choice{"web", "preferred"}},
	} {
		name, source := chooseWorkspace(c.requested, c.preferred, strings.Fields(c.accessible))
		if got := (choice{name, source}); got != c.want {
			t.Errorf("asked for %q, prefers %q, may use %s: %+v, want %+v", c.requested, c.preferred, c.accessible, got, c.want)
		}
	}
}

func TestHowLongATokenLives(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 5, time.UTC)
	for days, want := range map[int]time.Time{
		0: {}, 1: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), 36500: time.Date(2125, 12, 8, 12, 0, 0, 0, time.UTC),
	} {
		if got, err := lifetime(now, days); err != nil || !got.Equal(want) {
			t.Errorf("%d days: %v %v", days, got, err)
		}
	}
	for _, days := range []int{-1, 36501} {
		if got, err := lifetime(now, days); err == nil {
			t.Errorf("%d days: %v", days, got)
		}
	}
}

func TestWhatAListOfRequestsTellsOfABody(t *testing.T) {
	for body, want := range map[string]string{
		`{"cluster_name":"c","task":"secret","env_vars":{"A":"b"}}`: `{"cluster_name":"c"}`,
		`{"task":"secret"}`: `{}`, `[]`: `null`, ``: `null`, `{`: `null`,
	} {
		if got := shownBody([]byte(body)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestHostsAreComparedWithoutPorts(t *testing.T) {
	for host, want := range map[string]string{
		"Example.ORG": "example.org", "example.org:80": "example.org", "example.org.": "example.org", "[::1]:80": "::1", "[::1]": "::1", "::1": "::1", "": "",
	} {
		if got := hostname(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
