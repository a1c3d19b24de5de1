package lambda_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/lambda"
	"github.com/skypilot-go/sky/internal/cloud/lambda/lambdafake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: "lambda", Region: "us-east-1"}, InstanceType: "gpu_1x_a10", CPUs: 30, MemoryGiB: 200, HourlyPrice: 0.75}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: "lambda", Region: "us-west-1"}, InstanceType: "gpu_1x_a10", CPUs: 30, MemoryGiB: 200, HourlyPrice: 0.75}
)

// start is a cloud, and how to make providers over it.
func start(t testing.TB) (*lambdafake.Fake, func(o lambda.Options) *lambda.Provider) {
	t.Helper()
	fake := lambdafake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	cloudtest.HomeFile(t, home, ".lambda_cloud/lambda_keys", "api_key = "+lambdafake.Key+"\n")
	return fake, func(o lambda.Options) *lambda.Provider {
		o.Home, o.Transport = home, fake
		return lambda.New(o)
	}
}

// quick are the options of tests that are about something else than the time.
var quick = lambda.Options{Poll: 100 * time.Millisecond, Paces: []rest.Pace{}, Busy: -1}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider(quick) }, "keys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		h.Limited = func(testing.TB) (cloud.Provider, func() int) {
			fake.Limit()
			return provider(lambda.Options{Busy: -1}), fake.Over
		}
		return h
	})
}

func TestCredentials(t *testing.T) {
	for keys, want := range map[string]string{
		"":                             "no line",
		"key = x\n":                    "no line",
		"api_key =\n":                  "no line",
		"# mine\n api_key=wrong \nx\n": "invalid-api-key",
	} {
		home := t.TempDir()
		cloudtest.HomeFile(t, home, ".lambda_cloud/lambda_keys", keys)
		p := lambda.New(lambda.Options{Transport: lambdafake.New(), Home: home})
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
	synctest.Test(t, testALostAnswerIsWaitedForBeforeAnotherCall)
}

func testALostAnswerIsWaitedForBeforeAnotherCall(t *testing.T) {
	fake, provider := start(t)
	p := provider(quick)
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: cloudtest.Key}
	fake.Inject(model.Fault{Kind: model.Lose, Op: "instances.create", Times: 1})
	fake.HideNew(5)
	var lost *cloud.UnreachableError
	if _, err := p.Launch(t.Context(), spec); !errors.As(err, &lost) {
		t.Fatal(err)
	}
	var said string
	nodes, err := p.Launch(cloud.WithWaitReports(t.Context(), func(what string) {
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
	p := provider(quick)
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

// Two servers that make the cloudtest.Key at the same moment leave one that can be used.
func TestKeysOfOneNameAreMadeOne(t *testing.T) {
	fake, provider := start(t)
	p := provider(quick)
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: cloudtest.Key}
	launch := func(name string) {
		t.Helper()
		spec.ID.Name, spec.Token = name, name
		if _, err := p.Launch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
	}
	launch("web")
	keys := slices.DeleteFunc(fake.Inventory(), func(line string) bool { return !strings.HasPrefix(line, "keys ") })
	c := rest.New(rest.Options{Endpoint: "http://fake/api/v1", Transport: fake, Authorize: rest.Bearer(lambdafake.Key)})
	if _, err := rest.Do[any](t.Context(), c, "POST", "/ssh-keys", map[string]string{"name": strings.Fields(keys[0])[1], "public_key": cloudtest.Key}); err != nil {
		t.Fatal(err)
	}
	launch("web2")
}

// A ruleset that was left in another region is not taken for the cluster's: Lambda
// answers that it does not exist.
func TestARulesetOfAnotherRegionIsNoHindrance(t *testing.T) {
	fake, provider := start(t)
	p := provider(quick)
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: elsewhere, Nodes: 1, Token: "t", AuthorizedKey: cloudtest.Key, Ports: []string{"8080"}}
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	spec.Offer = here
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := fake.Rules(nodes[0].ID); !slices.Contains(got, "8080") {
		t.Errorf("open: %v", got)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	if left := slices.DeleteFunc(fake.Inventory(), func(line string) bool { return strings.HasPrefix(line, "keys ") }); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// In a region without firewall and private addresses nodes reach each other at their
// public ones, and people are told that everybody does.
func TestARegionWithoutAFirewall(t *testing.T) {
	_, provider := start(t)
	p := provider(quick)
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 2, Token: "t", AuthorizedKey: cloudtest.Key, Ports: []string{"8080"}}
	spec.Offer.Region = "us-south-1"
	var told []string
	if err := p.Prepare(cloud.WithNotes(t.Context(), func(text string) { told = append(told, text) }), spec); err != nil {
		t.Fatal(err)
	}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil || nodes[0].InternalIP == "" || nodes[0].InternalIP == nodes[1].InternalIP || len(told) != 1 || !strings.Contains(told[0], "open to the world") {
		t.Errorf("%+v, %v; said %q", nodes, err, told)
	}
	if err := p.OpenPorts(t.Context(), spec.ID, []string{"9000"}); err != nil {
		t.Error(err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	fake, provider := start(t)
	p := provider(quick)
	for code, right := range map[string]func(error) bool{
		"provider/gpu-quota":           cloudtest.Is[*cloud.CapacityError],
		"global/conflict":              cloudtest.Is[*rest.Error],
		"global/not-found":             cloudtest.Is[*rest.Error],
		"file-system-in-wrong-region":  cloudtest.Is[*rest.Error],
		"global/quota-exceeded":        cloudtest.Is[*cloud.QuotaError],
		"global/account-inactive":      cloudtest.Is[*cloud.AuthError],
		"global/object-does-not-exist": cloudtest.Is[*cloud.InvalidError],
	} {
		fake.Inject(model.Fault{Kind: model.Fail, Code: fluffyapi.Code(code)})
		if _, err := p.Check(t.Context()); !right(err) {
			t.Errorf("%s: %T (%v)", code, err, err)
		}
		fake.Restore()
	}
}
