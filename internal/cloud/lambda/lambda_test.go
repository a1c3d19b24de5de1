package lambda_test

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/lambda"
	"github.com/skypilot-go/sky/internal/cloud/lambda/lambdafake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: "lambda", Region: "us-east-1"}, InstanceType: "gpu_1x_a10", CPUs: 30, MemoryGiB: 200, HourlyPrice: 0.75}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: "lambda", Region: "us-west-1"}, InstanceType: "gpu_1x_a10", CPUs: 30, MemoryGiB: 200, HourlyPrice: 0.75}
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

// start is a provider over a cloud of its own.
func start(t testing.TB) (*lambdafake.Fake, func() *lambda.Provider) {
	fake, provider, _ := startAt(t)
	return fake, provider
}

// startAt tells where the cloud is, too.
func startAt(t testing.TB) (*lambdafake.Fake, func() *lambda.Provider, string) {
	t.Helper()
	fake := lambdafake.New()
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	write(t, home, "api_key = "+lambdafake.Key+"\n")
	return fake, func() *lambda.Provider {
		return lambda.New(lambda.Options{Endpoint: s.URL + "/api/v1", Home: home, Poll: 5 * time.Millisecond, Settle: 500 * time.Millisecond, Paces: []rest.Pace{}, Busy: -1})
	}, s.URL + "/api/v1"
}

func write(t testing.TB, home, keys string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(home, ".lambda_cloud"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".lambda_cloud", "lambda_keys"), []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	cloudtest.RunBeside(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		return cloudtest.Harness{
			Provider:  provider(),
			Spec:      cloud.LaunchSpec{Offer: here, AuthorizedKey: key},
			Elsewhere: &elsewhere,
			Another:   func(testing.TB) cloud.Provider { return provider() },
			Restore:   func(testing.TB) { fake.Restore() },
			Fill:      func(_ testing.TB, o cloud.Offer, left int) { fake.Fill(o.Region, o.InstanceType, left) },
			Quota:     func(_ testing.TB, o cloud.Offer, left int) { fake.Quota(o.Region, left) },
			Throttle:  func(testing.TB) { fake.Throttle() },
			Refuse:    func(testing.TB) { fake.Refuse() },
			Forbid:    func(testing.TB) { fake.Forbid() },
			Cut:       func(testing.TB) { fake.Cut() },
			Hang:      func(testing.TB) { fake.Hang() },
			Slow:      func(_ testing.TB, boot time.Duration) { fake.Slow(boot) },
			LoseAnswers: func(_ testing.TB, to cloudtest.Effect, times int) {
				fake.Lose(map[cloudtest.Effect]string{cloudtest.Creating: "launch", cloudtest.Terminating: "terminate"}[to], times)
			},
			Lie:    func(_ testing.TB, n cloud.Node, state string) { fake.Lie(n.ID, state) },
			Kill:   func(_ testing.TB, n cloud.Node) { fake.Kill(n.ID) },
			Billed: func(_ testing.TB, n cloud.Node) bool { return fake.Billed(n.ID) },
			// Keys are the account's and stay.
			Inventory: func(testing.TB) []string {
				return slices.DeleteFunc(fake.Inventory(), func(line string) bool { return strings.HasPrefix(line, "keys ") })
			},
			OpenPorts: func(_ testing.TB, n cloud.Node) []string {
				return slices.DeleteFunc(fake.Rules(n.ID), func(ports string) bool { return ports == "22" })
			},
		}
	})
}

func TestCredentials(t *testing.T) {
	for keys, want := range map[string]string{
		"":                             "no line",
		"key = x\n":                    "no line",
		"api_key =\n":                  "no line",
		"# mine\n api_key=wrong \nx\n": "invalid-api-key",
	} {
		fake := httptest.NewServer(lambdafake.New())
		defer fake.Close()
		home := t.TempDir()
		write(t, home, keys)
		p := lambda.New(lambda.Options{Endpoint: fake.URL + "/api/v1", Home: home})
		_, err := p.Check(t.Context())
		var auth *cloud.AuthError
		if !errors.As(err, &auth) || !strings.Contains(err.Error(), want) || !strings.Contains(auth.Fix, "lambda_keys") {
			t.Errorf("%q: %v", keys, err)
		}
	}
	if _, err := lambda.New(lambda.Options{Home: t.TempDir(), Endpoint: "http://127.0.0.1:1"}).Check(t.Context()); err == nil || strings.Contains(err.Error(), "no answer") {
		t.Errorf("without a file: %v", err)
	}
}

// Lambda lists the machine of a call whose answer was lost when it pleases. No
// second call is made meanwhile.
func TestALostAnswerIsWaitedForBeforeAnotherCall(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key}
	fake.Lose("launch", 1)
	fake.HideNew(5)
	var lost *cloud.UnreachableError
	if _, err := p.Launch(t.Context(), spec); !errors.As(err, &lost) {
		t.Fatal(err)
	}
	var said string
	nodes, err := p.Launch(cloud.WithWaits(t.Context(), func(what string) {
		if strings.Contains(what, "answer was lost") {
			said = what
		}
	}), spec)
	if err != nil || len(nodes) != 1 || said == "" {
		t.Errorf("%v, %v, said %q", nodes, err, said)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
}

// A region without room is found out without a launch, of which there are few.
func TestAFullRegionIsSeenBeforeALaunch(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	fake.Fill(here.Region, here.InstanceType, 0)
	a, err := p.Available(t.Context(), here, 1)
	if err != nil || a.Verdict != cloud.AvailableNone || !strings.Contains(a.Reason, "it has some in ") {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = p.Available(t.Context(), elsewhere, 1); err != nil || a.Verdict != cloud.AvailableNow {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = p.Available(t.Context(), elsewhere, 2); err != nil || a.Verdict != cloud.AvailabilityUnknown {
		t.Errorf("two machines: %+v, %v", a, err)
	}
}

// Two servers that make the key at the same moment leave one that can be used.
func TestKeysOfOneNameAreMadeOne(t *testing.T) {
	fake, provider, endpoint := startAt(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	var name string
	for _, line := range fake.Inventory() {
		if strings.HasPrefix(line, "keys ") {
			name = strings.Fields(line)[1]
		}
	}
	c := rest.New(rest.Options{Endpoint: endpoint, Authorize: rest.Bearer(lambdafake.Key)})
	if _, err := rest.Do[any](t.Context(), c, "POST", "/ssh-keys", map[string]string{"name": name, "public_key": key}); err != nil {
		t.Fatal(err)
	}
	spec.ID.Name, spec.Token = "web2", "t2"
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"web", "web2"} {
		spec.ID.Name = name
		if err := p.Terminate(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
	}
}
