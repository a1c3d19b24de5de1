//go:build attack && linux

package attack

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// stranger is an account of this machine that is not the server's.
const stranger = 65534

// TestEveryRouteByEveryRole calls every route that the server describes as everybody.
// Who may not is refused, and nothing has changed; who may is let in.
func TestEveryRouteByEveryRole(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("calls as another account of this machine need root")
	}
	c := count(t)
	s := newSite(t, false)
	launch := s.as("uma").done("/launch", map[string]any{
		"task": "resources: {infra: local}\nrun: sleep 1000\n", "cluster_name": "umas",
		"override_skypilot_config": map[string]any{"active_workspace": "lab"},
	})
	given := map[string]any{
		"cluster_name": "umas", "cluster": "umas", "user_id": s.ids["uma"], "request_ids": []string{launch}, "job_id": 1,
		"override_skypilot_config": map[string]any{},
	}
	relay := harness.NewRelay(t, s.address)
	nobody, proxied, other := s.as(""), s.as(""), s.as("")
	proxied.address = relay.Address()
	other.uid = stranger
	otherUma := s.as("uma") // a login is a login, whoever connects
	otherUma.uid = stranger
	callers := []struct {
		who    string
		caller *caller
		column int
		others bool // asks about what belongs to somebody else
	}{
		{"no login", nobody, 0, true},
		{"no login, through a local proxy", proxied, 0, true},
		{"no login, another account", other, 0, true},
		{"a viewer", s.as("vic"), 1, true},
		{"the owner", s.as("uma"), 2, false},
		{"the owner, from another account", otherUma, 2, false},
		{"another user", s.as("otto"), 2, true},
		{"a user elsewhere", s.as("wes"), 3, true},
		{"an administrator", s.as("ada"), 4, false},
	}
	table := rights(t)
	all := s.routes()
	seen := map[string]bool{}
	call := func(who *caller, r route) answer {
		path := r.concrete()
		switch {
		case strings.HasPrefix(path, "/api/get"), strings.HasPrefix(path, "/api/stream"):
			path += "?request_id=" + launch
		case strings.HasSuffix(path, "-ssh-proxy"), path == "/shell", path == "/port-forward", path == "/ssh-interactive-auth":
			path += "?cluster_name=umas&port=8080"
		}
		var body io.Reader
		kind := ""
		if r.body != nil {
			b, err := json.Marshal(r.sample(given))
			if err != nil {
				t.Fatal(err)
			}
			body, kind = bytes.NewReader(b), "application/json"
		}
		c.add("calls", 1)
		who.streams = 5 * time.Second
		return who.within(callLimit, r.method, path, body, kind)
	}
	before := s.everything()
	for _, allowed := range []bool{false, true} { // whatever is refused first: it has no effect
		if allowed {
			if after := s.everything(); after != before {
				c.add("effects of refused calls", 1)
				t.Errorf("calls that were refused changed something:\nbefore %s\nafter  %s", before, after)
			}
			// What takes the others' ground away comes last.
			slices.SortStableFunc(all, func(a, b route) int { return last(a) - last(b) })
		}
		for _, r := range all {
			row, ok := table[r.String()]
			if seen[r.String()] = true; !ok {
				if allowed {
					t.Errorf("%s has no row in testdata/roles.txt: write down who may call it", r)
				}
				continue
			}
			for _, who := range callers {
				right := row[who.column]
				may := right == "yes" || right == "own" && !who.others
				switch {
				case right == "own" && who.others && (strings.HasPrefix(r.path, "/users/service-account-tokens/") || r.path == "/api/cancel"):
					continue // about a token that does not exist, or one's own requests
				}
				if may != allowed {
					continue
				}
				a := call(who.caller, r)
				for n := 0; a.status == 429 && n < 3; n++ {
					a = call(who.caller, r)
				}
				if a.err != nil {
					t.Errorf("%s as %s: %v", r, who.who, a.err)
					continue
				}
				redirected := a.status == 302 && right == "login"
				if !may && !a.refused() && !redirected {
					c.add("let in", 1)
					t.Errorf("%s as %s: %s; it must be refused", r, who.who, a)
				}
				if may && a.refused() {
					c.add("kept out", 1)
					t.Errorf("%s as %s: %s; it must be let in", r, who.who, a)
				}
			}
		}
	}
	for row := range table {
		if !seen[row] {
			t.Errorf("testdata/roles.txt tells of %s, which the server does not describe", row)
		}
	}
	s.noFaults(c)
}

// last orders routes: those that take away what other calls are about come later.
func last(r route) int {
	order := []string{"/stop", "/down", "/users/", "/workspaces/"}
	if r.path == "/users/delete" { // after it nobody logs in as uma
		return len(order) + 1
	}
	for n, prefix := range order {
		if strings.HasPrefix(r.path, prefix) {
			return n + 1
		}
	}
	return 0
}

// everything is what an administrator sees of what refused calls could change.
func (s *site) everything() string {
	s.t.Helper()
	ada := s.as("ada")
	var all []string
	for _, path := range []string{"/users", "/users/service-account-tokens", "/ssh_node_pools"} {
		a := ada.get(path)
		all = append(all, steady(a.body))
	}
	for path, body := range map[string]any{"/status": map[string]any{"all_users": true}, "/recipes/list": map[string]any{}, "/jobs/queue": map[string]any{"all_users": true}} {
		all = append(all, path+steady(ada.result(ada.post(path, body)).body))
	}
	for _, path := range []string{"/workspaces", "/workspaces/config", "/volumes"} {
		all = append(all, steady(ada.result(ada.get(path)).body))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// steady is an answer without what changes by itself.
func steady(b []byte) string {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return string(b)
	}
	var clean func(v any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				if slices.Contains([]string{"request_id", "created_at", "finished_at", "status_updated_at", "last_used_at", "last_seen", "last_event", "duration", "updated_at"}, k) {
					delete(v, k)
				} else {
					v[k] = clean(v[k])
				}
			}
		case []any:
			for i := range v {
				v[i] = clean(v[i])
			}
		case string:
			if json.Valid([]byte(v)) && strings.ContainsAny(v, "{[") {
				return steady([]byte(v))
			}
		}
		return v
	}
	out, _ := json.Marshal(clean(v))
	return string(out)
}

// TestAServerWithoutLoginsKnowsItsOwner calls every route of a server without logins
// from another account of the machine: all that is not for everybody is refused.
func TestAServerWithoutLoginsKnowsItsOwner(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("calls as another account of this machine need root")
	}
	c := count(t)
	w := harness.New(t)
	w.Sky("api", "start")
	s := &site{t: t, w: w, address: "127.0.0.1:" + lastOf(w.Env, "SKY_API_PORT=")}
	table := rights(t) // what is open to everybody even with logins tells nothing about anybody
	owner, other := s.as(""), s.as("")
	other.uid = stranger
	for _, r := range s.routes() {
		c.add("calls", 1)
		var body any
		if r.body != nil {
			body = r.sample(map[string]any{"cluster_name": "none", "cluster": "none"})
		}
		b, _ := json.Marshal(body)
		a := other.within(3*callLimit, r.method, r.concrete(), bytes.NewReader(b), "application/json")
		if a.err != nil {
			t.Errorf("%s: %v", r, a.err)
		} else if !a.refused() && (table[r.String()] == nil || table[r.String()][0] != "yes") {
			c.add("let in", 1)
			t.Errorf("%s from another account: %s; it must be refused", r, a)
		}
	}
	if a := owner.get("/users"); a.status != 200 {
		t.Errorf("the owner is refused: %s", a)
	}
	s.noFaults(c)
}

func lastOf(env []string, prefix string) (value string) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, prefix); ok {
			value = v
		}
	}
	return value
}
