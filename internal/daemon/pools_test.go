//go:build unix

package daemon

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

// An administrator gives the server a key and a pool; the machines are looked
// at, and told of; nobody else may say how the server reaches machines.
func TestPoolsOfOwnMachinesOverTheAPI(t *testing.T) {
	w := newTeam(t, teamConfig)
	private, sshd := machineOfOnesOwn(t)
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "nvidia-smi"), []byte("#!/bin/sh\nfor i in 1 2; do echo 'NVIDIA T4, 15360'; done\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	sshd.Set(func(k *sshtest.Knobs) { k.Env = map[string]string{"PATH": tools + ":" + os.Getenv("PATH")} })
	ada, uma, ctx := w.as("ada"), w.as("uma"), t.Context()
	path, err := ada.UploadSSHKey(ctx, "lab-key", private)
	if err != nil {
		t.Fatal(err)
	}
	pool := map[string]any{"lab": map[string]any{"user": "tester", "identity_file": path, "password": "tulip",
		"hosts": []any{map[string]any{"ip": "127.0.0.1", "port": sshd.Port()}}}}
	if err := ada.SetSSHPools(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if names, err := ada.SSHKeys(ctx); err != nil || len(names) != 1 || names[0] != "lab-key" {
		t.Errorf("keys %v, %v", names, err)
	}
	told, err := uma.SSHPools(ctx)
	if err != nil || told["lab"]["user"] != "tester" || told["lab"]["password"] == "tulip" {
		t.Errorf("uma is told %v, %v", told, err)
	}
	for what, err := range map[string]error{
		"sets pools":     uma.SetSSHPools(ctx, pool),
		"removes a pool": uma.DeleteSSHPool(ctx, "lab"),
	} {
		if err == nil {
			t.Errorf("uma %s", what)
		}
	}
	if _, err := uma.UploadSSHKey(ctx, "other", private); err == nil {
		t.Error("uma gives the server a key")
	}
	if s, err := uma.SSHPoolStatus(ctx, "lab"); err != nil || s.Status != "Ready" || s.ContextName != "ssh-lab" || !strings.HasPrefix(s.Free, "1 of 1 machines, ") || !strings.HasSuffix(s.Free, " GB, 2 of 2 T4") {
		t.Errorf("status %+v, %v", s, err)
	}
	up := func(infra string, up bool) error {
		_, err := got[any](w)(uma.SwitchSSHPools(ctx, infra, up))
		return err
	}
	if err := up("lab", true); err != nil {
		t.Errorf("up: %v", err)
	}
	if err := up("", false); err != nil {
		t.Errorf("down: %v", err)
	}
	pools, err := got[[]api.ContextGPUs](w)(uma.KubernetesGPUs(ctx, nil, nil, nil, true))
	if err != nil || len(pools) != 1 || pools[0].Context != "ssh-lab" || len(pools[0].GPUs) != 1 || pools[0].GPUs[0].GPU != "T4" || pools[0].GPUs[0].Capacity != 2 || pools[0].GPUs[0].Available != 2 {
		t.Errorf("GPUs: %+v, %v", pools, err)
	}
	lab := "ssh-lab"
	nodes, err := got[api.KubernetesNodes](w)(uma.KubernetesNodeInfo(ctx, &lab))
	if n := nodes.Nodes["127.0.0.1"]; err != nil || n.Total.Count != 2 || n.Free.Available != 2 || n.CPUFree == nil || *n.CPUFree < 1 {
		t.Errorf("nodes: %+v, %v", nodes, err)
	}
	if err := up("nope", true); err == nil || !strings.Contains(err.Error(), `no pool "nope"`) {
		t.Errorf("a pool that is not there: %v", err)
	}
	sshd.Close()
	if err := up("lab", true); err == nil || !strings.Contains(err.Error(), "1 of 1 machines cannot be used") {
		t.Errorf("a machine that is off: %v", err)
	}
	if s, err := uma.SSHPoolStatus(ctx, "lab"); err != nil || s.Status != "Not Ready" || !strings.Contains(s.Reason, "127.0.0.1") {
		t.Errorf("status %+v, %v", s, err)
	}
	if err := ada.DeleteSSHPool(ctx, "lab"); err != nil {
		t.Error(err)
	}
	if err := ada.DeleteSSHPool(ctx, "lab"); err == nil {
		t.Error("the pool is removed twice")
	}
	_, err = uma.SSHPoolStatus(ctx, "lab")
	if s, ok := errors.AsType[*sky.StatusError](err); !ok || s.Code != http.StatusNotFound {
		t.Errorf("the status of a pool where there are none: %v", err)
	}
	if err := up("", true); err == nil || !strings.Contains(err.Error(), "no machines of one's own") {
		t.Errorf("without pools: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.home, ".sky", "ssh_node_pools.yaml")); err != nil {
		t.Error(err)
	}
}
