package daemon

import (
	"testing"

	"github.com/skypilot-go/sky/internal/config"
)

// The configuration is for administrators to read, unless it says that users may.
func TestWhoReadsTheConfiguration(t *testing.T) {
	own := map[string]any{"user": map[string]any{"permissions": map[string]any{"blocklist": []any{map[string]any{"path": "/down", "method": "POST"}}}}}
	for _, tt := range []struct {
		name string
		rbac map[string]any
		want bool
	}{
		{"nothing is said", nil, false},
		{"users may", map[string]any{"restrict_config_to_admins": false}, true},
		{"a list of its own says nothing of it", map[string]any{"roles": own}, false},
		{"users may, with a list", map[string]any{"roles": own, "restrict_config_to_admins": false}, true},
	} {
		c, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"rbac": tt.rbac, "dashboard": map[string]any{"external_links": []any{map[string]any{"label": "a", "url": "https://x"}}}})
		if tt.rbac == nil {
			c, err = config.FromMap(config.Server, config.Origin{}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		rules, err := rulesOf(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.Policy.Allows("user", "GET", "/workspaces/config", false); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
		if !rules.Policy.Allows("admin", "GET", "/workspaces/config", true) || rules.Policy.Allows("viewer", "GET", "/workspaces/config", false) {
			t.Errorf("%s: an administrator may, a viewer may not", tt.name)
		}
		if list, _ := rules.Links.([]any); (len(list) == 1) != (tt.rbac != nil) {
			t.Errorf("%s: links %v", tt.name, rules.Links)
		}
	}
}
