package server

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/api"
)

// machines are pools in memory.
type machines struct {
	mu    sync.Mutex
	pools map[string]map[string]any
	keys  map[string]string
}

func (m *machines) Pools() (map[string]map[string]any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.pools), nil
}

func (m *machines) Set(_ context.Context, pools map[string]map[string]any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.pools, pools)
	return nil
}

func (m *machines) Remove(_ context.Context, pool string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[pool] == nil {
		return &api.Error{Type: api.ErrFileNotFound, Message: "There is no such pool."}
	}
	delete(m.pools, pool)
	return nil
}

func (m *machines) Status(_ context.Context, pool string) (api.SSHPoolStatus, error) {
	return api.SSHPoolStatus{PoolName: pool, ContextName: "ssh-" + pool, Status: "Ready"}, nil
}

func (m *machines) KeyNames() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, slices.Sorted(maps.Keys(m.keys))...), nil
}

func (m *machines) AddKey(name string, key []byte) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[name] = string(key)
	return "/keys/" + name, nil
}

func TestPoolRoutes(t *testing.T) {
	own := &machines{pools: map[string]map[string]any{}, keys: map[string]string{}}
	env := newTestEnv(t, func(d *Deps) { d.OwnMachines = own })
	form := "--b\r\nContent-Disposition: form-data; name=\"key_name\"\r\n\r\nk\r\n--b\r\nContent-Disposition: form-data; name=\"key_file\"; filename=\"k\"\r\n\r\nTEXT\r\n--b--\r\n"
	const multipart = "multipart/form-data; boundary=b"
	for _, c := range []struct {
		name, method, path, body, kind string
		status                         int
		answer                         string
	}{
		{"none yet", get, "/ssh_node_pools", "", "", 200, `{}`},
		{"one is set", post, "/ssh_node_pools", `{"lab":{"hosts":["h"]}}`, "", 200, `{"status":"success"}`},
		{"and told", get, "/ssh_node_pools", "", "", 200, `{"lab":{"hosts":["h"]}}`},
		{"no JSON", post, "/ssh_node_pools", `{`, "", 422, ``},
		{"no object", post, "/ssh_node_pools", `{"lab":[]}`, "", 422, ``},
		{"its status", get, "/ssh_node_pools/lab/status", "", "", 200, `{"pool_name":"lab","context_name":"ssh-lab","status":"Ready","reason":""}`},
		{"it is removed", del, "/ssh_node_pools/lab", "", "", 200, `{"status":"success"}`},
		{"twice", del, "/ssh_node_pools/lab", "", "", 404, `{"detail":"There is no such pool."}`},
		{"no keys", get, "/ssh_node_pools/keys", "", "", 200, `[]`},
		{"a key", post, "/ssh_node_pools/keys", form, multipart, 200, `{"key_path":"/keys/k","status":"success"}`},
		{"no form", post, "/ssh_node_pools/keys", `{}`, "", 400, ``},
		{"a form without a file", post, "/ssh_node_pools/keys", strings.ReplaceAll(form, "key_file", "file"), multipart, 400, ``},
		{"a key that is no key in size", post, "/ssh_node_pools/keys", strings.Replace(form, "TEXT", strings.Repeat("x", maxKey+1), 1), multipart, 400, ``},
		{"a huge form", post, "/ssh_node_pools/keys", strings.Replace(form, "TEXT", strings.Repeat("x", 1<<20), 1), multipart, 400, ``},
		{"keys", get, "/ssh_node_pools/keys", "", "", 200, `["k"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.kind != "" {
				headers = []string{"Content-Type", c.kind}
			}
			got := env.call(c.method, c.path, c.body, headers...)
			if got.status != c.status || c.answer != "" && strings.TrimSpace(got.body) != c.answer {
				t.Errorf("%d %s, want %d %s", got.status, got.body, c.status, c.answer)
			}
		})
	}
	if own.keys["k"] != "TEXT" {
		t.Errorf("kept %q", own.keys)
	}
	if got := newTestEnv(t, func(d *Deps) { d.OwnMachines = nil }).call(get, "/ssh_node_pools", ""); got.status != http.StatusBadRequest {
		t.Errorf("without machines of one's own: %d %s", got.status, got.body)
	}
}
