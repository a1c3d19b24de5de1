package gcp

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

// projects are several projects behind one transport, each a fake of its own, and answers of
// projects that refuse.
type projects struct {
	fakes   map[string]*gcpfake.Fake
	refuse  map[string]string // by project: the body of a 403
	search  string            // the body of the search; "": it is forbidden
	mu      sync.Mutex
	calls   map[string]int // by project, and of searches
	changed map[string]int // calls that are no GET
}

var projectPath = regexp.MustCompile(`/projects/([^/:]+)`)

func (p *projects) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	id := gcpfake.Project
	if m := projectPath.FindStringSubmatch(r.URL.Path); m != nil {
		id = m[1]
	}
	if strings.HasSuffix(r.URL.Path, "/v3/projects:search") {
		id = "search"
	}
	p.mu.Lock()
	p.calls[id]++
	if r.Method != "GET" && r.URL.Path != "/token" {
		p.changed[id]++
	}
	p.mu.Unlock()
	switch {
	case id == "search" && p.search == "":
		return answer(403, `{"error":{"code":403,"message":"The caller does not have permission","status":"PERMISSION_DENIED"}}`)
	case id == "search":
		return answer(200, p.search)
	case p.refuse[id] != "":
		return answer(403, p.refuse[id])
	case p.fakes[id] == nil:
		return nil, fmt.Errorf("there is no project %s", id)
	case id == gcpfake.Project:
		return p.fakes[id].RoundTrip(r)
	}
	to := r.Clone(r.Context())
	to.URL.Path = strings.Replace(to.URL.Path, "/projects/"+id, "/projects/"+gcpfake.Project, 1)
	to.URL.RawPath = ""
	to.Header.Set("Authorization", "Bearer "+p.fakes[id].Token())
	return p.fakes[id].RoundTrip(to)
}

const (
	denied   = `{"error":{"code":403,"message":"Required 'compute.instances.list' permission for 'projects/x'","errors":[{"reason":"forbidden","message":"m","domain":"global"}]}}`
	disabled = `{"error":{"code":403,"message":"Compute Engine API has not been used in project x before or it is disabled.","errors":[{"reason":"accessNotConfigured","message":"m","domain":"usageLimits"}]}}`
)

// several are a project in use, one of the configuration, one that the credentials see, and
// three that cannot be read.
func several() *projects {
	return &projects{
		fakes:  map[string]*gcpfake.Fake{gcpfake.Project: gcpfake.New(), "team-b": gcpfake.New(), "found-1": gcpfake.New()},
		refuse: map[string]string{"closed": denied, "locked": denied, "empty": disabled},
		search: `{"projects":[{"projectId":"found-1","state":"ACTIVE"},{"projectId":"team-b","state":"ACTIVE"},{"projectId":"empty","state":"ACTIVE"},{"projectId":"closed","state":"ACTIVE"},
			{"projectId":"sys-26171337","state":"ACTIVE"},{"projectId":"leaving","state":"DELETE_REQUESTED"}]}`,
		calls: map[string]int{}, changed: map[string]int{},
	}
}

// A sweep finds an installation's machines in all projects with a bounded number of calls,
// names the projects that it cannot read, and ends machines where they are, only those of the
// cluster that it is asked to end.
func TestMachinesInOtherProjectsAreListedAndEnded(t *testing.T) {
	home(t, t.Setenv)
	synctest.Test(t, func(t *testing.T) {
		many := several()
		o := quick
		o.Transport, o.Projects = many, func() []string { return []string{"", "team-b", "locked", gcpfake.Project} }
		mine := cloud.ClusterID{Installation: "i1", Name: "c1", Hash: "h1"}
		theirs := cloud.ClusterID{Installation: "i2", Name: "c1", Hash: "h9"}
		other := cloud.ClusterID{Installation: "i1", Name: "c2", Hash: "h2"}
		seed(t, many.fakes[gcpfake.Project], cloud.ClusterID{Installation: "i1", Name: "c0", Hash: "h0"})
		seed(t, many.fakes["team-b"], mine)
		seed(t, many.fakes["team-b"], theirs)
		seed(t, many.fakes["found-1"], other)
		p := New(o)

		nodes, unread, err := p.ListAccounts(t.Context(), "i1")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, n := range nodes {
			got[n.Cluster] = n.Account
		}
		if want := map[string]string{"c0": "", "c1": "team-b", "c2": "found-1"}; !maps.Equal(got, want) {
			t.Errorf("found %v, want %v", got, want)
		}
		var names []string
		for _, u := range unread {
			names = append(names, fmt.Sprint(u.Name, " ", u.Found))
			if _, ok := u.Err.(*cloud.PermissionError); !ok {
				t.Errorf("%s: %v", u.Name, u.Err)
			}
		}
		if want := []string{"locked false", "closed true"}; !slices.Equal(names, want) {
			t.Errorf("not read: %v, want %v", names, want)
		}
		for id, n := range many.calls {
			if most := map[string]int{"search": 1}[id]; n > max(most, 4) { // instances, TPUs, queued resources; and a token
				t.Errorf("%d calls about %s", n, id)
			}
		}
		if len(many.changed) > 0 {
			t.Errorf("a list changed %v", many.changed)
		}
		if many.calls["sys-26171337"]+many.calls["leaving"] > 0 {
			t.Error("projects were asked that have no machines")
		}

		if err := p.Terminate(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		if left := many.fakes["team-b"].Inventory(); len(left) == 0 || slices.ContainsFunc(left, func(l string) bool { return strings.Contains(l, rankZero(mine)) }) ||
			!slices.ContainsFunc(left, func(l string) bool { return strings.Contains(l, rankZero(theirs)) }) {
			t.Errorf("left in the project: %v", left)
		}
		if left := many.fakes["found-1"].Inventory(); !slices.ContainsFunc(left, func(l string) bool { return strings.Contains(l, rankZero(other)) }) {
			t.Errorf("another cluster has gone: %v", left)
		}
		if nodes, err := p.Nodes(t.Context(), mine); err != nil || len(nodes) > 0 {
			t.Errorf("%v, %v", nodes, err)
		}
	})
}

func rankZero(id cloud.ClusterID) string { return names.Of(id, 0) }

// Who may not search is asked about the projects that are named.
func TestNamedProjectsAreListedWithoutASearch(t *testing.T) {
	home(t, t.Setenv)
	synctest.Test(t, func(t *testing.T) {
		many := several()
		many.search = ""
		o := quick
		o.Transport, o.Projects = many, func() []string { return []string{"team-b"} }
		seed(t, many.fakes["team-b"], cloud.ClusterID{Installation: "i1", Name: "c1", Hash: "h1"})
		nodes, unread, err := New(o).ListAccounts(t.Context(), "i1")
		if err != nil || len(nodes) != 1 || nodes[0].Account != "team-b" || len(unread) != 1 || !unread[0].Found {
			t.Errorf("%v, %v, %v", nodes, unread, err)
		}
	})
}
