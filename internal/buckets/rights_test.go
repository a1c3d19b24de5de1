package buckets

import (
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

func settings(t *testing.T, values map[string]any) func() *config.Config {
	t.Helper()
	c, err := config.FromMap(config.Server, config.Origin{}, values)
	if err != nil {
		t.Fatal(err)
	}
	return func() *config.Config { return c }
}

// The server's credentials are administrators', unless one of them lets everybody use them.
func TestUsersNeedLeaveToUseBuckets(t *testing.T) {
	tk := &task.Task{FileMounts: map[string]string{"/x": "s3://b/key"}}
	at := func(scope *state.Scope, values map[string]any) error {
		m := New(Deps{Config: settings(t, values)})
		return m.Check(t.Context(), cluster.Call{Scope: scope, Out: quiet{}}, tk, false)
	}
	closed := map[string]any{"allowed_clouds": []any{"local"}} // so that no store is asked
	isDenied := func(err error) bool {
		e, ok := err.(*api.Error)
		return ok && e.Type == api.ErrPermissionDenied
	}
	if err := at(&state.Scope{}, closed); !isDenied(err) {
		t.Errorf("a user: %v", err)
	}
	if err := at(nil, closed); isDenied(err) {
		t.Errorf("an administrator: %v", err)
	}
	if err := at(&state.Scope{}, map[string]any{"allowed_clouds": []any{"local"}, "storage": map[string]any{"allow_users": true}}); isDenied(err) || err == nil {
		t.Errorf("a user who may: %v", err)
	}
}

// exec checks nothing beforehand.
func TestMountsNeedLeaveToo(t *testing.T) {
	tk := &task.Task{StorageMounts: map[string]task.StorageMount{"/x": {Sources: []string{"s3://b"}, Mode: "MOUNT"}}}
	m := New(Deps{Config: settings(t, nil)})
	err := m.Mount(t.Context(), cluster.Call{Scope: &state.Scope{}, Out: quiet{}}, &state.Cluster{}, tk, func(s string) string { return s })
	if e, ok := err.(*api.Error); !ok || e.Type != api.ErrPermissionDenied {
		t.Errorf("a user: %v", err)
	}
}
