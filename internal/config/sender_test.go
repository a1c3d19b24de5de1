package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What a user who logs in may set is written down: a key that is new is nobody's
// but the administrators' until somebody has thought about what it makes the
// server do.
func TestKeysThatUsersMaySet(t *testing.T) {
	var have []string
	for _, d := range Docs() {
		if !d.ServerOnly && d.Admins == "" {
			have = append(have, d.Path)
		}
		if d.Task && d.Admins != "" {
			t.Errorf("tasks may set %s, and users may not: %s", d.Path, d.Admins)
		}
	}
	const file = "testdata/user_keys.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(have, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(text))
	for _, key := range have {
		if !slices.Contains(want, key) {
			t.Errorf("users may set %s: does it make the server execute, open or connect to anything, or choose whose rights it uses? "+
				"Then say so with admins(…); else: go test ./internal/config -run KeysThatUsersMaySet -update", key)
		}
	}
	for _, key := range want {
		if !slices.Contains(have, key) {
			t.Errorf("users may not set %s any more; if that is meant: go test ./internal/config -run KeysThatUsersMaySet -update", key)
		}
	}
}

// Every key that makes the server do something is taken from administrators and
// never from a user who logs in, wherever in the configuration it is.
func TestAUserCannotMakeTheServerDoThings(t *testing.T) {
	const own = "aws: {vpc_name: v, ssh_proxy_command: nc %h %p}\n"
	for _, sent := range []string{
		"aws: {ssh_proxy_command: touch /tmp/x}",
		"aws: {ssh_proxy_command: {us-east-1: touch /tmp/x}}",
		"aws: {remote_identity: admins}",
		"aws: {use_ssm: true}",
		"gcp: {ssh_proxy_command: touch /tmp/x}",
		"nebius: {domain: 169.254.169.254}",
		"kubernetes: {allowed_contexts: all}",
		"kubernetes: {namespace: kube-system}",
		"kubernetes: {context_configs: {prod: {namespace: kube-system}}}",
		"kubernetes: {allowed_nodes: {names: [a]}}",
		"ssh: {allowed_node_pools: [theirs]}",
		"slurm: {allowed_clusters: all}",
		"logs: {store: aws, aws: {credentials_file: /etc/shadow}}",
		"jobs: {controller: {mode: cluster}}",
		"jobs: {controller: {resources: {image_id: docker:evil}}}",
		"jobs: {callback_runner: [sh]}",
		"plugins: {x: y}",
	} {
		s := server(t, own)
		c, err := s.Request(values(t, sent), User)
		if err != nil {
			t.Errorf("%s: %v", sent, err)
			continue
		}
		if !reflect.DeepEqual(c.Map(), s.Map()) {
			t.Errorf("a user set %s: %v", sent, c.Map())
		}
		if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0].String(), "only its administrators may set them") && !strings.Contains(w[0].String(), "only it decides them") {
			t.Errorf("%s: nothing was said: %v", sent, w)
		}
		if c, err := s.Request(values(t, sent), Admin); err != nil || !strings.Contains(sent, "callback_runner") && reflect.DeepEqual(c.Map(), s.Map()) {
			t.Errorf("an administrator could not set %s: %v", sent, err)
		}
		if s.ControllerOn("jobs", values(t, sent), User) != OnServer {
			t.Errorf("%s: a user chose where managed jobs are", sent)
		}
	}
}

// What is not the sender's goes, and the rest beside it stays.
func TestTheRestOfAUsersConfigurationHolds(t *testing.T) {
	s := server(t, "workspaces: {team: {}}")
	c, err := s.Request(values(t, "active_workspace: team\naws: {vpc_name: mine, ssh_proxy_command: x}\nkubernetes: {context_configs: {a: {namespace: n, provision_timeout: 5}}}"), User)
	if err != nil {
		t.Fatal(err)
	}
	want := values(t, "active_workspace: team\naws: {vpc_name: mine}\nkubernetes: {context_configs: {a: {provision_timeout: 5}}}\nworkspaces: {team: {}}")
	if !reflect.DeepEqual(c.Map(), want) {
		t.Errorf("%v, want %v", c.Map(), want)
	}
	if _, err := s.Request(values(t, `aws: {ssh_user: "x\n  ProxyCommand evil"}`), User); err == nil {
		t.Error("a user's name may hold a line of an ssh configuration")
	}
}
