package registry

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheNameOfAnImage(t *testing.T) {
	for _, c := range []struct{ image, server, want, host string }{
		{"python", "", "python", "Docker Hub"},
		{"team/train", "registry.example.com", "registry.example.com/team/train", "registry.example.com"},
		{"team/train:1", "https://registry.example.com/", "registry.example.com/team/train:1", "registry.example.com"},
		{"registry.example.com/team/train:1", "registry.example.com", "registry.example.com/team/train:1", "registry.example.com"},
		{"localhost:5000/train", "localhost:5000", "localhost:5000/train", "localhost:5000"},
		{"localhost/train@sha256:abc", "", "localhost/train@sha256:abc", "localhost"},
		{"me/train:2", "docker.io", "me/train:2", "Docker Hub"},
		{"me/train:2", "https://index.docker.io/v1/", "me/train:2", "Docker Hub"},
		{"train:2", "ghcr.io/org", "ghcr.io/org/train:2", "ghcr.io"},
	} {
		var l *Login
		if c.server != "" {
			l = &Login{Username: "u", Server: c.server}
		}
		if got := l.Image(c.image); got != c.want || HostOf(got) != c.host {
			t.Errorf("%s at %q: %s of %s, want %s of %s", c.image, c.server, got, HostOf(got), c.want, c.host)
		}
	}
}

func TestTheTextOfALogin(t *testing.T) {
	for server, key := range map[string]string{"docker.io": hubKey, "": hubKey, "https://ghcr.io/org": "ghcr.io", "localhost:5000": "localhost:5000"} {
		l := &Login{Username: "u", Password: "p", Server: server}
		if got, want := string(l.File()), `{"auths":{"`+key+`":{"auth":"dTpw"}}}`; got != want {
			t.Errorf("%q: %s, want %s", server, got, want)
		}
	}
}

func TestALoginPrintsWithoutItsPassword(t *testing.T) {
	l := Login{Username: "robot", Password: "hush", Server: "r.io"}
	for _, s := range []string{fmt.Sprint(l), fmt.Sprintf("%+v %#v", l, &l), l.LogValue().String()} {
		if strings.Contains(s, "hush") || !strings.Contains(s, "robot at r.io") {
			t.Error(s)
		}
	}
}
