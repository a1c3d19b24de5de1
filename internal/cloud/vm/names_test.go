package vm

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestNamesTellWhoseAMachineIs(t *testing.T) {
	n := Names{Max: 60}
	mine := cloud.ClusterID{Installation: "inst", Name: "web-1", Hash: "0123-hash"}
	name := n.Of(mine, 12)
	long := mine
	long.Name = strings.Repeat("x", n.MaxCluster())
	if got := n.Of(long, 9999); len(got) != n.Max {
		t.Errorf("%q has %d characters, not %d", got, len(got), n.Max)
	}
	for _, tt := range []struct {
		what string
		id   cloud.ClusterID
		name string
		hash string // "": it is not theirs
	}{
		{"itself", mine, name, mine.Hash},
		{"everything of the installation", cloud.ClusterID{Installation: "inst"}, name, cloud.ShortHash(mine.Hash)},
		{"by its short hash", cloud.ClusterID{Installation: "inst", Name: "web-1", Hash: cloud.ShortHash(mine.Hash)}, name, cloud.ShortHash(mine.Hash)},
		{"another installation", cloud.ClusterID{Installation: "other", Name: "web-1", Hash: mine.Hash}, name, ""},
		{"another incarnation", cloud.ClusterID{Installation: "inst", Name: "web-1", Hash: "x"}, name, ""},
		{"another name", cloud.ClusterID{Installation: "inst", Name: "web"}, name, ""},
		{"somebody else's machine", cloud.ClusterID{Installation: "inst"}, "web-1-worker-2", ""},
		{"no name", cloud.ClusterID{Installation: "inst"}, "", ""},
	} {
		tags, ok := n.Tags(tt.id, tt.name)
		if ok != (tt.hash != "") || ok && (tags[cloud.TagHash] != tt.hash || tags[cloud.TagCluster] != "web-1" || tags[cloud.TagRank] != "12" || tags[cloud.TagInstallation] != "inst") {
			t.Errorf("%s: %v, %t", tt.what, tags, ok)
		}
	}
}

// The scripts that let a key in are run as they are sent.
func TestScriptsLetAKeyIn(t *testing.T) {
	const key = "ssh-ed25519 AAAA me@here"
	script, err := StartScript(key, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	run := func(line string) {
		t.Helper()
		c := exec.Command("sh", "-c", line)
		c.Env = append(os.Environ(), "HOME="+home)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run(script)
	if got, err := os.ReadFile(filepath.Join(home, ".ssh", "authorized_keys")); err != nil || string(got) != key+"\n" {
		t.Errorf("%q, %v", got, err)
	}
	data, err := UserData(key, "ubuntu", 0)
	if err != nil || !strings.HasPrefix(data, "#!/bin/sh\nsu - ubuntu -c ") {
		t.Fatalf("%q, %v", data, err)
	}
	if inner, err := base64.StdEncoding.DecodeString(strings.Fields(data)[6]); err != nil || string(inner) != script {
		t.Errorf("%q, %v", inner, err)
	}
	for _, bad := range []struct {
		key  string
		most int
	}{{"a'; rm -rf /; '", 0}, {"a\nb", 0}, {key, 10}} {
		if got, err := StartScript(bad.key, true, bad.most); err == nil {
			t.Errorf("%q: %q", bad.key, got)
		}
	}
}
