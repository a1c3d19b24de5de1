package aws_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
)

// one is a launch of a machine in a zone of us-east-1.
func one(token string) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Offer: here, Nodes: 1, Token: token}
}

// TestWhatIsNewIsUnknownForAWhile: nobody has to call twice for it.
func TestWhatIsNewIsUnknownForAWhile(t *testing.T) {
	fake := start(t)
	p := with(aws.Settings{})
	fake.Settle(4)
	spec := big(3)
	spec.NetworkTier, spec.Ports = "best", []string{"8080"}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("prepare", p.Prepare(t.Context(), spec))
	_, err := p.Launch(t.Context(), spec)
	must("launch", err)
	must("stop", p.Stop(t.Context(), spec.ID))
	nodes, err := p.Launch(t.Context(), spec)
	must("start", err)
	if len(nodes) != 3 {
		t.Errorf("%v", nodes)
	}
	must("terminate", p.Terminate(t.Context(), spec.ID))
	if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// A launch whose answer is lost is given back although no list has it yet.
	fake.Lose("RunInstances", 1)
	spec.Token = "another"
	var lost *cloud.UnreachableError
	if _, err := p.Launch(t.Context(), spec); !errors.As(err, &lost) {
		t.Fatalf("%v", err)
	}
	must("terminate", p.Terminate(t.Context(), spec.ID))
	if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestATokenThatWasUsedOtherwise: a call that is made again with other
// parameters makes nothing twice, and something if nothing was made.
func TestATokenThatWasUsedOtherwise(t *testing.T) {
	fake := start(t)
	image := "ami-1"
	p := aws.New(aws.Options{Poll: 2 * time.Millisecond, Retries: 2, Backoff: time.Millisecond,
		Image: func(context.Context, string, string) (string, bool) { return image, true }})
	fake.Lose("RunInstances", 1)
	fake.Hide(5)
	if _, err := p.Launch(t.Context(), one("t")); err == nil {
		t.Fatal("the answer was lost")
	}
	image = "ami-2" // the price list has a newer one meanwhile
	nodes, err := p.Launch(t.Context(), one("t"))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%v, %v", nodes, err)
	}
	if n := len(fake.Machines()); n != 1 {
		t.Errorf("there are %d machines", n)
	}
	if err := p.Terminate(t.Context(), one("t").ID); err != nil {
		t.Fatal(err)
	}
	image = "ami-3"
	if nodes, err = p.Launch(t.Context(), one("t")); err != nil || len(nodes) != 1 {
		t.Errorf("after its end: %v, %v", nodes, err)
	}
}

func TestRegionsThatLetNobodyIn(t *testing.T) {
	for _, code := range []string{"OptInRequired", "AuthFailure", "UnauthorizedOperation"} {
		t.Run(code, func(t *testing.T) {
			fake := start(t)
			fake.CloseRegion("eu-central-1", code)
			p := provider()
			if _, err := p.Check(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
			spec := one("t")
			spec.Ports = []string{"80"}
			if nodes, err := tryLaunch(t, p, spec); err != nil || len(nodes) != 1 {
				t.Errorf("elsewhere: %v, %v", nodes, err)
			}
			there := one("t2")
			there.ID.Name = "d"
			there.Offer.Place = cloud.Place{Cloud: "aws", Region: "eu-central-1"}
			_, err := tryLaunch(t, p, there)
			var refused *cloud.PermissionError
			var invalid *cloud.InvalidError
			at := cloud.Place{}
			switch {
			case errors.As(err, &refused):
				at = refused.Place
			case errors.As(err, &invalid):
				at = invalid.Place
			}
			if at != there.Offer.Place || !strings.Contains(err.Error(), "switched") {
				t.Errorf("there: %v", err)
			}
			if err := p.Terminate(t.Context(), spec.ID); err != nil {
				t.Errorf("down: %v", err)
			}
			// A region that has let us in before may hold machines.
			spec.Offer, spec.Token = elsewhere, "t3"
			if _, err := tryLaunch(t, p, spec); err != nil {
				t.Fatal(err)
			}
			fake.CloseRegion("us-west-2", "UnauthorizedOperation")
			if list, err := provider().Nodes(t.Context(), cloud.ClusterID{}); err != nil {
				t.Errorf("a server that never was in there: %v, %v", list, err)
			}
			if list, err := p.Nodes(t.Context(), spec.ID); err == nil {
				t.Errorf("a region that cannot be seen any more: %v", list)
			}
		})
	}
}

func tryLaunch(t *testing.T, p *aws.Provider, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := p.Prepare(t.Context(), spec); err != nil {
		return nil, err
	}
	return p.Launch(t.Context(), spec)
}

// TestClocks: a clock that is wrong is named as what is to be mended.
func TestClocks(t *testing.T) {
	fake := start(t)
	fake.Drift(2 * time.Hour)
	p := provider()
	if _, err := p.Check(t.Context()); err != nil {
		var auth *cloud.AuthError
		if !errors.As(err, &auth) || !strings.Contains(auth.Fix, "clock") {
			t.Errorf("check: %v", err)
		}
	}
	var auth *cloud.AuthError
	if _, err := tryLaunch(t, p, one("t")); err != nil && (!errors.As(err, &auth) || !strings.Contains(auth.Fix, "clock")) {
		t.Errorf("launch: %v", err)
	}
}

func TestMachinesThatEndBeforeTheyRun(t *testing.T) {
	for code, want := range map[string]string{
		"Client.VolumeLimitExceeded": "*cloud.QuotaError", "Client.InternalError": "*cloud.InvalidError",
		"Client.InvalidSnapshot.NotFound": "*cloud.InvalidError", "Server.InternalError": "*cloud.CapacityError",
		"Server.InsufficientInstanceCapacity": "*cloud.CapacityError",
	} {
		fake := start(t)
		fake.Break(code, code+": no")
		_, err := provider().Launch(t.Context(), one("t"))
		if fmt.Sprintf("%T", err) != want || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %T %v, want %s", code, err, err, want)
		}
	}
}

// TestTagsAreOnAllThatIsMade: labels say what costs money.
func TestTagsAreOnAllThatIsMade(t *testing.T) {
	fake := start(t)
	spec := one("t")
	spec.Labels = map[string]string{"team": "vision"}
	nodes, err := provider().Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	machine, volumes, nics := fake.Tags(nodes[0].ID)
	for _, tags := range slices.Concat([]map[string]string{machine}, volumes, nics) {
		if tags["team"] != "vision" || tags[cloud.TagInstallation] != "i" || tags[cloud.TagCluster] != "c" {
			t.Errorf("%v", tags)
		}
	}
	if len(volumes) != 1 || len(nics) != 1 {
		t.Errorf("%d volumes, %d interfaces", len(volumes), len(nics))
	}
	spec.Token, spec.Labels = "t2", map[string]string{}
	for n := range 45 {
		spec.Labels[fmt.Sprint("label", n)] = "x"
	}
	var invalid *cloud.InvalidError
	if err := provider().Prepare(t.Context(), spec); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "50 tags at most") {
		t.Errorf("%v", err)
	}
}

func TestDiskTiers(t *testing.T) {
	for tier, want := range map[string]string{"": "gp3 3500 218", "low": "standard  ", "medium": "gp3 3500 218", "high": "gp3 7000 437", "ultra": "io2 20000 ", "best": "io2 20000 "} {
		fake := start(t)
		spec := one("t")
		spec.DiskTier = tier
		nodes, err := provider().Launch(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if disk, _, _, _ := fake.Details(nodes[0].ID); disk != want {
			t.Errorf("%q: %q, want %q", tier, disk, want)
		}
	}
	start(t)
	spec := one("t")
	spec.DiskTier, spec.DiskGB = "low", 2000
	var invalid *cloud.InvalidError
	if err := provider().Prepare(t.Context(), spec); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "1024 GB") {
		t.Errorf("%v", err)
	}
}

// TestNamesOfAnyLength: what is named after a cluster has a name that AWS takes.
func TestNamesOfAnyLength(t *testing.T) {
	fake := start(t)
	spec := big(2)
	spec.ID.Name = strings.Repeat("a", 240)
	spec.NetworkTier, spec.Ports = "best", []string{"80"}
	p := provider()
	if _, err := tryLaunch(t, p, spec); err != nil {
		t.Error(err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPortsOfMachinesWithManyAdapters: each of their interfaces is moved, and
// the adapters can still reach each other.
func TestPortsOfMachinesWithManyAdapters(t *testing.T) {
	fake := start(t)
	fake.Private()
	p := with(aws.Settings{InternalIPs: true, ProxyCommand: map[string]string{"": "jump"}})
	spec := big(2)
	spec.NetworkTier, spec.Offer.InstanceType = "best", "p4d.24xlarge"
	nodes, err := tryLaunch(t, p, spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, kinds, _, _ := fake.Details(nodes[0].ID); len(kinds) != 4 {
		t.Errorf("%q", kinds)
	}
	if err := p.OpenPorts(t.Context(), spec.ID, []string{"8080"}); err != nil {
		t.Fatal(err)
	}
	if open := fake.Open(nodes[1].ID); !slices.Equal(open, []string{"8080"}) {
		t.Errorf("open: %v", open)
	}
	if groups := fake.GroupsOf(nodes[0].ID); len(slices.Compact(groups)) != 1 || !fake.SendsToItself(groups[0]) {
		t.Errorf("the interfaces are in %v", groups)
	}
}

// TestTeardown compares the account before and after, object by object: what is
// left is what docs/aws.md lists as shared, and nothing else.
func TestTeardown(t *testing.T) {
	text, err := os.ReadFile("../../../docs/aws.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]*) \| [^|]* \| no, [^|]* \|$`).FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = true
	}
	stays := map[string]*regexp.Regexp{
		"a security group `sky-sg-…` for all clusters without ports": regexp.MustCompile(`^sg-\w+ sky-sg-[0-9a-f]{10}$`),
		"the role and instance profile `skypilot-v1`":                regexp.MustCompile(`^(role|instance profile) skypilot-v1$`),
	}
	if !maps.EqualFunc(documented, stays, func(bool, *regexp.Regexp) bool { return true }) {
		t.Fatalf("docs/aws.md says that these stay: %v", slices.Sorted(maps.Keys(documented)))
	}

	fake := start(t)
	fake.Private()
	fake.Seed("us-east-1", "us-east-1a", "m6i.large", map[string]string{"Name": "somebody else's"})
	fake.Reserve(awsfake.Reservation{ID: "cr-a", Zone: "us-east-1a", Machine: "m6i.large", Count: 1})
	before := fake.Inventory()
	for n, tt := range []struct {
		name     string
		settings aws.Settings
		change   func(*cloud.LaunchSpec)
		more     func(p *aws.Provider, id cloud.ClusterID) error
	}{
		{"plain", aws.Settings{}, func(*cloud.LaunchSpec) {}, nil},
		{"ports", aws.Settings{}, func(s *cloud.LaunchSpec) { s.Ports = []string{"80", "8000-8010"} }, nil},
		{"ports that are opened later", aws.Settings{}, func(*cloud.LaunchSpec) {}, func(p *aws.Provider, id cloud.ClusterID) error { return p.OpenPorts(t.Context(), id, []string{"80"}) }},
		{"spot", aws.Settings{}, func(s *cloud.LaunchSpec) { s.Offer.Spot = true }, nil},
		{"stopped", aws.Settings{}, func(*cloud.LaunchSpec) {}, func(p *aws.Provider, id cloud.ClusterID) error { return p.Stop(t.Context(), id) }},
		{"fast network", aws.Settings{InternalIPs: true, EncryptDisks: true}, func(s *cloud.LaunchSpec) {
			s.NetworkTier, s.Offer.InstanceType, s.Ports = "best", "p4d.24xlarge", []string{"80"}
		}, nil},
		{"a reservation", aws.Settings{Reservations: []string{"cr-a"}}, func(*cloud.LaunchSpec) {}, nil},
		{"an image that brings disks", aws.Settings{}, func(s *cloud.LaunchSpec) { s.ImageID = "ami-with-data" }, nil},
		{"no role", aws.Settings{NoIdentity: true}, func(s *cloud.LaunchSpec) { s.DiskTier, s.LocalDisk = "ultra", "nvme:100+" }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := with(tt.settings)
			spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: fmt.Sprint("h", n)}, Offer: here, Nodes: 2, Token: fmt.Sprint("t", n)}
			tt.change(&spec)
			if _, err := tryLaunch(t, p, spec); err != nil {
				t.Fatal(err)
			}
			if tt.more != nil {
				if err := tt.more(p, spec.ID); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Terminate(t.Context(), spec.ID); err != nil {
				t.Fatal(err)
			}
			after := slices.DeleteFunc(fake.Inventory(), func(thing string) bool {
				for _, one := range stays {
					if one.MatchString(thing) {
						return true
					}
				}
				return false
			})
			if !slices.Equal(after, before) {
				t.Errorf("the account held\n%s\nand holds\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

// TestOneAccountAtATime: a workspace's profile is not passed over, which would
// rent with another account than it says.
func TestOneAccountAtATime(t *testing.T) {
	fake := start(t)
	spec := one("t")
	spec.Settings = map[string]any{"profile": "prod"}
	var invalid *cloud.InvalidError
	if _, err := provider().Launch(t.Context(), spec); !errors.As(err, &invalid) || !strings.Contains(err.Error(), `aws.profile is "prod" here`) {
		t.Errorf("launch: %v", err)
	}
	if err := provider().Prepare(t.Context(), spec); !errors.As(err, &invalid) || len(fake.Inventory()) > 0 {
		t.Errorf("prepare: %v", err)
	}
}

// TestWhatUsersRead: what is wrong, and what to do about it.
func TestWhatUsersRead(t *testing.T) {
	fake := start(t)
	check := func() (fix string, err error) {
		_, err = provider().Check(t.Context())
		var auth *cloud.AuthError
		if errors.As(err, &auth) {
			fix = auth.Fix
		}
		return fix, err
	}
	for _, tt := range []struct {
		name       string
		with       func()
		says, mend string
	}{
		{"wrong keys", fake.Refuse, "InvalidClientTokenId", "aws configure"},
		{"a region that is not switched on", func() { fake.CloseRegion("us-east-1", "OptInRequired") }, "the region us-east-1, which is asked for the others, does not let these credentials in", ""},
		{"a region that is denied", func() { fake.CloseRegion("us-east-1", "UnauthorizedOperation") }, "name one that does as your default (AWS_REGION", ""},
		{"no endpoint", func() { t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1") }, `unreachable: no answer from http://127.0.0.1:1/: dial tcp 127.0.0.1:1: connect: connection refused`, ""},
		{"no such profile", func() { t.Setenv("AWS_PROFILE", "nope") }, `there is no profile "nope" in `, "aws configure list-profiles"},
	} {
		tt.with()
		if fix, err := check(); err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(fix, tt.mend) {
			t.Errorf("%s: %v\nto be mended by %q", tt.name, err, fix)
		}
		fake.Restore()
	}
}

// TestAGroupIsGoneBeforeItsMachinesAre: they cost nothing while they are taken
// apart, which takes long on metal.
func TestAGroupIsGoneBeforeItsMachinesAre(t *testing.T) {
	fake := start(t)
	fake.End = time.Hour
	p := aws.New(aws.Options{Image: images, Poll: 5 * time.Millisecond, Timeout: 20 * time.Second})
	spec := one("t")
	spec.Nodes, spec.Ports = 2, []string{"8080"}
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	own := func(thing string) bool { return strings.Contains(thing, " sky-sg-c-") }
	if !slices.ContainsFunc(fake.Inventory(), own) {
		t.Fatalf("the cluster has no group of its own: %q", fake.Inventory())
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	for _, thing := range fake.Inventory() {
		if own(thing) || strings.HasPrefix(thing, "i-") {
			t.Errorf("left behind: %s", thing)
		}
	}
}
