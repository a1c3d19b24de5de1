package fluffycloud

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

func TestCredentials(t *testing.T) {
	const good = "# mine\n[default]\nendpoint = http://127.0.0.1:1\ntoken = secret-word\n"
	for _, tt := range []struct {
		name, file, endpoint, token string
		want                        credentials
		err                         string
	}{
		{"none", "", "", "", credentials{}, "is there"},
		{"from the file", good, "", "", credentials{"http://127.0.0.1:1", "secret-word"}, ""},
		{"the environment wins", good, "http://[::1]:2", "other", credentials{"http://[::1]:2", "other"}, ""},
		{"half of them", good, "http://[::1]:2", "", credentials{}, "both an endpoint and a token"},
		{"a file without a token", "endpoint = http://127.0.0.1:1\n", "", "", credentials{}, "both an endpoint and a token"},
		{"a line that says nothing", "endpoint\n", "", "", credentials{}, "line 1"},
		{"no address", "endpoint = 127.0.0.1:1\ntoken = secret-word\n", "", "", credentials{}, "not an address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			t.Setenv(EnvEndpoint, tt.endpoint)
			t.Setenv(EnvToken, tt.token)
			if tt.file != "" {
				if err := os.MkdirAll(filepath.Join(home, ".fluffycloud"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(home, ".fluffycloud", "credentials"), []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readCredentials()
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
			if tt.err == "" {
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret-word") {
				t.Errorf("error %v, want one with %q and without the token", err, tt.err)
			}
			start := time.Now()
			_, err = New(Options{}).Check(t.Context())
			var auth *cloud.AuthError
			if !errors.As(err, &auth) || auth.Fix == "" || time.Since(start) > time.Second {
				t.Errorf("check: %v after %v", err, time.Since(start))
			}
		})
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add("endpoint = http://127.0.0.1:1\ntoken = x\n")
	f.Add("[x]\n#\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCredentials(strings.NewReader(text))
		if err == nil && strings.ContainsAny(c.endpoint+c.token, "\n") {
			t.Errorf("%+v", c)
		}
	})
}

func TestNextStepOfALaunch(t *testing.T) {
	type in = fluffyapi.Instance
	at := func(rank string, s fluffyapi.State) in {
		return in{ID: "i" + rank, Zone: "east-a", State: s, Tags: map[string]string{cloud.TagRank: rank}}
	}
	elsewhere := at("0", fluffyapi.Running)
	elsewhere.Zone = "east-b"
	for _, tt := range []struct {
		name      string
		nodes     int
		instances []in
		start     string
		create    int
		done      bool
		err       bool
	}{
		{"nothing yet", 2, nil, "", 2, false, false},
		{"one is missing", 2, []in{at("0", fluffyapi.Running)}, "", 1, false, false},
		{"one boots", 2, []in{at("0", fluffyapi.Running), at("1", fluffyapi.Pending)}, "", 0, false, false},
		{"all run", 2, []in{at("1", fluffyapi.Running), at("0", fluffyapi.Running)}, "", 0, true, false},
		{"one is off", 2, []in{at("0", fluffyapi.Stopped), at("1", fluffyapi.Running)}, "i0", 0, false, false},
		{"resume before create", 3, []in{at("0", fluffyapi.Stopped)}, "i0", 0, false, false},
		{"wait for what stops, create nothing", 2, []in{at("0", fluffyapi.Stopping)}, "", 0, false, false},
		{"wait for what ends", 1, []in{at("0", fluffyapi.Terminating)}, "", 0, false, false},
		{"what has ended is no more", 1, []in{at("0", fluffyapi.Terminated)}, "", 1, false, false},
		{"more than asked for", 1, []in{at("0", fluffyapi.Running), at("1", fluffyapi.Stopped)}, "", 0, false, true},
		{"two of a rank", 2, []in{at("0", fluffyapi.Running), at("0", fluffyapi.Running)}, "", 0, false, true},
		{"a rank beyond those asked for", 2, []in{at("5", fluffyapi.Running)}, "", 0, false, true},
		{"no rank at all", 1, []in{at("x", fluffyapi.Running)}, "", 0, false, true},
		{"another zone", 1, []in{elsewhere}, "", 0, false, true},
		{"a state nobody knows", 1, []in{at("0", "quantum")}, "", 0, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := cloud.LaunchSpec{Nodes: tt.nodes, Offer: cloud.Offer{Place: cloud.Place{Zone: "east-a"}}}
			s, err := next(spec, tt.instances, nil)
			if (err != nil) != tt.err || strings.Join(s.start, " ") != tt.start || len(s.create) != tt.create || s.done != tt.done {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	lost := []in{at("0", fluffyapi.Terminated)}
	_, err := next(cloud.LaunchSpec{Nodes: 1, Offer: cloud.Offer{Place: cloud.Place{Zone: "east-a"}}}, lost, map[string]bool{"i0": true})
	var full *cloud.CapacityError
	if !errors.As(err, &full) {
		t.Errorf("a machine that is lost while it starts: %v", err)
	}
}
