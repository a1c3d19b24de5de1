package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesThatDescribePools(t *testing.T) {
	const auth = "auth: {ssh_user: u, ssh_private_key: ~/k}\n"
	for _, tt := range []struct{ name, yaml, want string }{
		{"pools", "a: {hosts: [h1]}\nb: {user: u, hosts: [{ip: h2}]}", `{"a":{"hosts":["h1"]},"b":{"hosts":[{"ip":"h2"}],"user":"u"}}`},
		{"a cluster", "cluster: {ips: [h1, h2], name: lab}\n" + auth, `{"lab":{"hosts":["h1","h2"],"identity_file":"~/k","user":"u"}}`},
		{"of one machine", "cluster: {ips: 10.0.0.1, name: lab}\n" + auth + "python: /usr/bin/python3\n", `{"lab":{"hosts":["10.0.0.1"],"identity_file":"~/k","user":"u"}}`},
		{"pools with these names", "cluster: {hosts: [h1]}\nauth: {hosts: [h2]}", `{"auth":{"hosts":["h2"]},"cluster":{"hosts":["h1"]}}`},
		{"a pool of that name", "cluster: {hosts: [h1]}", `{"cluster":{"hosts":["h1"]}}`},
		{"a copy for users", "cluster: {ips: [h1], name: lab}\nauth: {ssh_user: PLACEHOLDER, ssh_private_key: PLACEHOLDER}\n", "error: auth.ssh_user and auth.ssh_private_key are still to be filled in"},
		{"without a name", "cluster: {ips: [h1]}\n" + auth, "error: cluster.name is missing"},
		{"without machines", "cluster: {name: lab}\n" + auth, "error: cluster.ips is missing"},
		{"misspelt", "cluster: {ips: [h1], name: lab}\nauth: {ssh_usr: u}\n", "error: 2:8: unknown field \"ssh_usr\" in auth; did you mean \"ssh_user\"?"},
		{"with a list for a name", "cluster: {ips: [h1], name: [lab]}\n" + auth, "error: 1:28: cluster.name should be text, not a list"},
		{"with numbers", "cluster: {ips: [1.50], name: 007}\n" + auth, `{"007":{"hosts":["1.50"],"identity_file":"~/k","user":"u"}}`},
		{"a list", "- a\n", "error: 1:1: the document should be a map, not a list"},
	} {
		file := filepath.Join(t.TempDir(), "pools.yaml")
		if err := os.WriteFile(file, []byte(tt.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		pools, err := readPools(file)
		b, _ := json.Marshal(pools)
		got := string(b)
		if err != nil {
			got = "error: " + err.Error()
		}
		if want, is := strings.CutPrefix(tt.want, "error: "); got != tt.want && !(is && err != nil && strings.Contains(got, want)) {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
