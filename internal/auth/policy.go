package auth

import (
	"fmt"
	"strings"
)

// A Rule names routes: "*" stands for the rest of the path, ":name" for one part
// of it.
type Rule struct{ Method, Path string }

// Covers reports whether a route is among those that the rule names.
func (r Rule) Covers(method, path string) bool {
	if !strings.EqualFold(r.Method, method) && r.Method != "*" {
		return false
	}
	want, have := strings.Split(r.Path, "/"), strings.Split(path, "/")
	for i, part := range want {
		switch {
		case part == "*" && i == len(want)-1:
			return len(have) > i
		case i >= len(have), !strings.HasPrefix(part, ":") && part != have[i], part != have[i] && have[i] == "":
			return false
		}
	}
	return len(want) == len(have)
}

// Policy is what an installation changes about the permissions of the route
// table. The zero value changes nothing.
type Policy struct {
	// Blocked replaces, for a role in it, what the role may not call: all else is
	// open to it.
	Blocked map[string][]Rule
	// Allowed is what viewers may call besides what the table says.
	Allowed []Rule
	// Opened is what users may.
	Opened []Rule
}

// Allows decides about a route that the table opens or not to the role.
func (p Policy) Allows(role, method, path string, table bool) bool {
	if blocked, replaced := p.Blocked[role]; replaced {
		return !covered(blocked, method, path)
	}
	return table || role == "viewer" && covered(p.Allowed, method, path) || role == "user" && covered(p.Opened, method, path)
}

func covered(rules []Rule, method, path string) bool {
	for _, r := range rules {
		if r.Covers(method, path) {
			return true
		}
	}
	return false
}

// ReadPolicy reads the key rbac.roles of the server's configuration.
func ReadPolicy(roles any) (Policy, error) {
	p := Policy{Blocked: map[string][]Rule{}}
	for role, list := range map[string]string{"admin": "blocklist", "user": "blocklist", "viewer": "allowlist"} {
		value, ok := dig(roles, role, "permissions", list)
		if !ok {
			continue
		}
		rules, err := readRules(value)
		if err != nil {
			return Policy{}, fmt.Errorf("rbac.roles.%s.permissions.%s: %w", role, list, err)
		}
		if role == "viewer" {
			p.Allowed = rules
		} else {
			p.Blocked[role] = rules
		}
	}
	return p, nil
}

func dig(v any, path ...string) (any, bool) {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, v != nil
}

func readRules(v any) ([]Rule, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("must be a list of {path, method}")
	}
	out := []Rule{}
	for _, e := range list {
		m, _ := e.(map[string]any)
		path, _ := m["path"].(string)
		method, _ := m["method"].(string)
		if path == "" || method == "" {
			return nil, fmt.Errorf("each entry needs path and method")
		}
		out = append(out, Rule{Method: method, Path: path})
	}
	return out, nil
}
