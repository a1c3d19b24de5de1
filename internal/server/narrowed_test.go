package server

import (
	"net/http/httptest"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestACallerCanOnlyBeHeldToLess(t *testing.T) {
	r := httptest.NewRequest("POST", "/jobs/cancel", nil)
	if narrowed(r) != nil {
		t.Error("a call without the header is limited")
	}
	r.Header.Set(api.HeaderScope, `{"user":"ann","workspaces":["team"]}`)
	scope := narrowed(r)
	if !scope.Owns("ann") || scope.Owns("bob") || !scope.Sees("team") || scope.Sees("default") {
		t.Errorf("%+v", scope)
	}
	for _, bad := range []string{"x", "[]", `{"user":1}`} {
		r.Header.Set(api.HeaderScope, bad)
		if s := narrowed(r); s == nil || s.Owns("ann") || s.Sees("default") {
			t.Errorf("%q leaves %+v", bad, s)
		}
	}
}
