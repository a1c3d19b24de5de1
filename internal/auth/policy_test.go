package auth

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRuleCovers(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		path string
		want bool
	}{
		{Rule{"GET", "/users"}, "/users", true}, {Rule{"get", "/users"}, "/users", true}, {Rule{"POST", "/users"}, "/users", false},
		{Rule{"*", "/users"}, "/users", true}, {Rule{"GET", "/users"}, "/users/role", false}, {Rule{"GET", "/users/role"}, "/users", false},
		{Rule{"GET", "/dashboard/*"}, "/dashboard/a/b", true}, {Rule{"GET", "/dashboard/*"}, "/dashboard/", true}, {Rule{"GET", "/dashboard/*"}, "/dashboard", false},
		{Rule{"GET", "/debug/dump_download/:filename"}, "/debug/dump_download/x.zip", true},
		{Rule{"GET", "/debug/dump_download/:filename"}, "/debug/dump_download/", false},
		{Rule{"GET", "/debug/dump_download/:filename"}, "/debug/dump_download/a/b", false},
		{Rule{"GET", "/ssh_node_pools/:pool_name/status"}, "/ssh_node_pools/mine/status", true},
		{Rule{"GET", "/ssh_node_pools/:pool_name/status"}, "/ssh_node_pools/mine/keys", false},
	} {
		if got := c.rule.Covers(http.MethodGet, c.path); got != c.want {
			t.Errorf("%v covers %s: %v", c.rule, c.path, got)
		}
	}
}

func TestPolicy(t *testing.T) {
	list := func(kind, path, method string) map[string]any {
		return map[string]any{"permissions": map[string]any{kind: []any{map[string]any{"path": path, "method": method}}}}
	}
	p, err := ReadPolicy(map[string]any{"user": list("blocklist", "/down", "POST"), "viewer": list("allowlist", "/exec", "POST")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		role, path  string
		table, want bool
	}{
		{"user", "/down", true, false}, {"user", "/users/create", false, true}, {"viewer", "/exec", false, true}, {"viewer", "/down", false, false},
		{"admin", "/down", true, true},
	} {
		if got := p.Allows(c.role, "POST", c.path, c.table); got != c.want {
			t.Errorf("%s %s: %v", c.role, c.path, got)
		}
	}
	if _, err := ReadPolicy(map[string]any{"user": map[string]any{"permissions": map[string]any{"blocklist": []any{"/down"}}}}); err == nil {
		t.Error("a list of texts was accepted")
	}
	if p, err := ReadPolicy(nil); err != nil || p.Allows("user", "GET", "/x", false) || !p.Allows("user", "GET", "/x", true) {
		t.Errorf("without configuration: %+v, %v", p, err)
	}
}

func TestLoad(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{}
	load := func() (Options, error) { return Load(home, func(k string) string { return env[k] }) }
	o, err := load()
	if err != nil || o.Basic || o.ServiceAccounts || o.OAuth2 != nil || !o.Proxy.Enabled || o.Proxy.Explicit || len(o.Proxy.Trusted) != 2 {
		t.Errorf("nothing set: %+v, %v", o, err)
	}
	env["ENABLE_BASIC_AUTH"], env["ENABLE_SERVICE_ACCOUNTS"] = "true", "True"
	if o, err = load(); err != nil || !o.Basic || !o.ServiceAccounts || o.Proxy.Enabled {
		t.Errorf("basic: %+v, %v", o, err)
	}
	env["SKYPILOT_DISABLE_BASIC_AUTH_MIDDLEWARE"] = "true"
	if o, err = load(); err != nil || o.Basic || !o.Proxy.Enabled {
		t.Errorf("basic off: %+v, %v", o, err)
	}
	if err := os.MkdirAll(filepath.Join(home, ".sky"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, ".sky", ".server.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("auth:\n  external_proxy:\n    enabled: true\n    header_name: X-Me\n    header_format: jwt\n    jwt_identity_claim: email\n    trusted_proxies: [10.0.0.1]\n")
	o, err = load()
	if err != nil || !o.Proxy.Explicit || !o.Proxy.JWT {
		t.Fatalf("%+v, %v", o, err)
	}
	if diff := cmp.Diff([]string{"X-Me", "email", "10.0.0.1/32"}, []string{o.Proxy.Header, o.Proxy.Claim, o.Proxy.Trusted[0].String()}); diff != "" {
		t.Error(diff)
	}
	env["SKYPILOT_AUTH_USER_HEADER"] = "X-You"
	if o, err = load(); err != nil || o.Proxy.Header != "X-You" {
		t.Errorf("%+v, %v", o, err)
	}
	for name, bad := range map[string][2]string{
		"a switch":  {"ENABLE_BASIC_AUTH", "perhaps"},
		"an URL":    {"SKYPILOT_AUTH_OAUTH2_PROXY_ENABLED", "true"},
		"a network": {"SKY_TRUSTED_PROXIES", "10.0.0.0/99"},
	} {
		env = map[string]string{bad[0]: bad[1]}
		if _, err := load(); err == nil {
			t.Errorf("started with %s that is wrong", name)
		}
	}
	env = map[string]string{}
	for _, text := range []string{"auth: [", "auth:\n  external_proxy:\n    header_format: xml\n", "auth: {external_proxy: {enabled: 1}}", "auth: {external_proxy: {trusted_proxies: 10.0.0.1}}", "- auth"} {
		write(text)
		if _, err := load(); err == nil {
			t.Errorf("started with %q", text)
		}
	}
}
