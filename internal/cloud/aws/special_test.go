package aws_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// with is a provider with settings of the user's.
func with(s aws.Settings) *aws.Provider {
	return aws.New(aws.Options{Image: images, Poll: 5 * time.Millisecond, Retries: 2, Backoff: time.Millisecond, Settings: func() aws.Settings { return s }})
}

// big is a launch of machines with a fast network, wherever there is room in the
// region.
func big(nodes int) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "c", Hash: "h"}, Nodes: nodes, Token: "t",
		Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1"}, InstanceType: "p5.48xlarge"}}
}

func TestReservations(t *testing.T) {
	const m = "p5.48xlarge"
	for _, tt := range []struct {
		name  string
		have  []awsfake.Reservation
		nodes int
		want  []string // the reservations that are used; "" is on demand
		wait  string   // what the refusal says
	}{
		{"another type", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1a", Machine: "p4d.24xlarge", Count: 4}}, 1, []string{""}, ""},
		{"not named", []awsfake.Reservation{{ID: "cr-z", Zone: "us-east-1a", Machine: m, Count: 4}}, 1, []string{""}, ""},
		{"the one with most room", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1a", Machine: m, Count: 2}, {ID: "cr-b", Zone: "us-east-1b", Machine: m, Count: 3}}, 2, []string{"cr-b", "cr-b"}, ""},
		{"a block", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1c", Machine: m, Count: 2, Block: true}}, 2, []string{"cr-a", "cr-a"}, ""},
		{"several together", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1a", Machine: m, Count: 2}, {ID: "cr-b", Zone: "us-east-1b", Machine: m, Count: 3, Block: true}}, 5,
			[]string{"cr-a", "cr-a", "cr-b", "cr-b", "cr-b"}, ""},
		{"the rest on demand", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1a", Machine: m, Count: 1}}, 3, []string{"", "", "cr-a"}, ""},
		{"an expired block is none", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1c", Machine: m, Count: 2, Block: true, End: time.Now().Add(-time.Hour)}}, 1, []string{""}, ""},
		{"a block that has not begun", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1c", Machine: m, Count: 2, Block: true, Start: time.Now().Add(time.Hour)}}, 2, nil, "cr-a is scheduled and begins at 20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := start(t)
			for _, r := range tt.have {
				fake.Reserve(r)
				fake.Fill(r.Zone, r.Machine, false, 0) // there is no other capacity
			}
			fake.Lose("RunInstances", 1) // and the answer to the first call does not arrive
			p := with(aws.Settings{Reservations: []string{"cr-a", "cr-b"}})
			nodes, err := p.Launch(t.Context(), big(tt.nodes))
			if tt.wait != "" {
				var full *cloud.CapacityError
				if !errors.As(err, &full) || !strings.Contains(err.Error(), tt.wait) || full.Expected.IsZero() {
					t.Errorf("%v", err)
				}
				return
			}
			for try := 0; err != nil && try < 5; try++ { // as the engine does
				nodes, err = p.Launch(t.Context(), big(tt.nodes))
			}
			if err != nil {
				t.Fatal(err)
			}
			var used []string
			for _, n := range nodes {
				_, _, _, got := fake.Details(n.ID)
				used = append(used, got)
			}
			if slices.Sort(used); !slices.Equal(used, tt.want) {
				t.Errorf("in %q, want %q", used, tt.want)
			}
			// Once more makes nothing.
			if again, err := p.Launch(t.Context(), big(tt.nodes)); err != nil || len(again) != tt.nodes {
				t.Errorf("%v, %v", again, err)
			}
		})
	}
}

func TestReservationsOfOneZoneForAFastNetwork(t *testing.T) {
	const m = "p5.48xlarge"
	for _, tt := range []struct {
		name string
		have []awsfake.Reservation
		want []string
	}{
		{"two in one zone", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1a", Machine: m, Count: 1}, {ID: "cr-b", Zone: "us-east-1a", Machine: m, Count: 1}}, []string{"cr-a", "cr-b"}},
		{"two in two zones", []awsfake.Reservation{{ID: "cr-a", Zone: "us-east-1a", Machine: m, Count: 1}, {ID: "cr-b", Zone: "us-east-1b", Machine: m, Count: 1}}, []string{"", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := start(t)
			for _, r := range tt.have {
				fake.Reserve(r)
			}
			spec := big(2)
			spec.NetworkTier = "best"
			nodes, err := with(aws.Settings{Reservations: []string{"cr-a", "cr-b"}}).Launch(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			var used []string
			for _, n := range nodes {
				_, _, placement, got := fake.Details(n.ID)
				used = append(used, got)
				if (placement == "") != (got != "") {
					t.Errorf("%s in the reservation %q is in the placement group %q", n.ID, got, placement)
				}
			}
			if slices.Sort(used); !slices.Equal(used, tt.want) {
				t.Errorf("in %q, want %q", used, tt.want)
			}
		})
	}
}

func TestReservedCapacityNeedsNoQuota(t *testing.T) {
	fake := start(t)
	fake.SetQuota("us-east-1", "L-1", 0)
	options := aws.Options{Image: images, Poll: 5 * time.Millisecond, QuotaCode: quotaCode}
	var over *cloud.QuotaError
	if err := aws.New(options).Prepare(t.Context(), big(1)); !errors.As(err, &over) {
		t.Errorf("%v", err)
	}
	// So is one that allows some machines of that size, and not as many.
	fake.SetQuota("us-east-1", "L-1", 200)
	two := big(2)
	two.Offer.CPUs = 192
	if err := aws.New(options).Prepare(t.Context(), two); !errors.As(err, &over) || !strings.Contains(err.Error(), "is 200, and this takes 384") {
		t.Errorf("%v", err)
	}
	two.Nodes = 1
	if err := aws.New(options).Prepare(t.Context(), two); err != nil {
		t.Errorf("within the quota: %v", err)
	}
	fake.SetQuota("us-east-1", "L-1", 0)
	options.Settings = func() aws.Settings { return aws.Settings{Reservations: []string{"cr-a"}} }
	if err := aws.New(options).Prepare(t.Context(), big(1)); err != nil {
		t.Errorf("with a reservation: %v", err)
	}
}

func TestFastNetwork(t *testing.T) {
	fake := start(t)
	spec := big(2)
	spec.NetworkTier = "best"
	p := with(aws.Settings{})
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	_, nics, placement, _ := fake.Details(nodes[0].ID)
	if !slices.Equal(nics, []string{"efa"}) || !strings.HasPrefix(placement, "sky-pg-c-") {
		t.Errorf("%q in %q", nics, placement)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// A placement group that was made before a crash and never used goes, too.
	fake.Fill("us-east-1a", "p5.48xlarge", false, 0)
	fake.Fill("us-east-1b", "p5.48xlarge", false, 0)
	fake.Fill("us-east-1c", "p5.48xlarge", false, 0)
	spec.Token = "another"
	var full *cloud.CapacityError
	if _, err := p.Launch(t.Context(), spec); !errors.As(err, &full) {
		t.Errorf("%v", err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// A machine without such a network is rented as it is.
	plain := spec
	plain.Offer.InstanceType, plain.Token = "g5.xlarge", "a third"
	if nodes, err = p.Launch(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if _, nics, placement, _ := fake.Details(nodes[0].ID); !slices.Equal(nics, []string{""}) || placement != "" {
		t.Errorf("%q in %q", nics, placement)
	}
}

// TestFastNetworkBesideAnOrdinaryOne: the first network card of some machines can
// have no adapter.
func TestFastNetworkBesideAnOrdinaryOne(t *testing.T) {
	fake := start(t)
	fake.Private()
	spec := big(1)
	spec.NetworkTier, spec.Offer.InstanceType = "best", "p6-b300.48xlarge"
	var invalid *cloud.InvalidError
	if _, err := with(aws.Settings{}).Launch(t.Context(), spec); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "aws.use_internal_ips") {
		t.Errorf("with a public address: %v", err)
	}
	nodes, err := with(aws.Settings{InternalIPs: true}).Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, nics, _, _ := fake.Details(nodes[0].ID); len(nics) != 17 || nics[0] != "" || nics[1] != "efa-only" || nics[16] != "efa-only" {
		t.Errorf("%q", nics)
	}
}

func TestDisksInsideMachines(t *testing.T) {
	fake := start(t)
	spec := big(1)
	spec.DiskTier, spec.LocalDisk = "ultra", "nvme:100+"
	nodes, err := with(aws.Settings{}).Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if disk, _, _, _ := fake.Details(nodes[0].ID); disk != "io2 20000 " {
		t.Errorf("the disk is %q", disk)
	}
	if data := fake.Machines()[0].UserData; !strings.Contains(data, "EC2 NVMe Instance Storage") || !strings.Contains(data, "/mnt/local") {
		t.Errorf("user data:\n%s", data)
	}
}

func TestCommandsForNewMachines(t *testing.T) {
	fake := start(t)
	settings := aws.ReadSettings(map[string]any{"post_provision_runcmd": []any{`echo "a: b" >&2`, []any{"touch", "/tmp/x y"}}})
	if _, err := with(settings).Launch(t.Context(), big(1)); err != nil {
		t.Fatal(err)
	}
	var data struct {
		Bootcmd [][]string `json:"bootcmd"`
		Runcmd  []any      `json:"runcmd"`
	}
	cloudtest.ReadYAML(t, fake.Machines()[0].UserData, &data)
	if want := []any{`echo "a: b" >&2`, []any{"touch", "/tmp/x y"}}; !reflect.DeepEqual(data.Runcmd, want) || len(data.Bootcmd) != 1 || data.Bootcmd[0][2] != vm.QuietUpdates {
		t.Errorf("%v, want %v; bootcmd %v", data.Runcmd, want, data.Bootcmd)
	}
}

func TestSessionManager(t *testing.T) {
	fake := start(t)
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	p := with(aws.Settings{UseSSM: true, InternalIPs: false, Profile: ""})
	var invalid *cloud.InvalidError
	if err := p.Prepare(t.Context(), big(1)); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "has no aws; install the AWS CLI") {
		t.Errorf("%v", err)
	}
	tool := func(name string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool("aws")
	if err := p.Prepare(t.Context(), big(1)); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "has no session-manager-plugin; install") {
		t.Errorf("%v", err)
	}
	if left := fake.Inventory(); len(left) > 0 {
		t.Errorf("made although nothing could be reached: %v", left)
	}
	tool("session-manager-plugin")
	if err := p.Prepare(t.Context(), big(1)); err != nil {
		t.Fatal(err)
	}
	nodes, err := p.Launch(t.Context(), big(1))
	if err != nil {
		t.Fatal(err)
	}
	want := "aws ssm start-session --region us-east-1 --target " + nodes[0].ID + " --document-name AWS-StartSSHSession --parameters portNumber=%p"
	if got := nodes[0].Reach.ProxyCommand; got != want {
		t.Errorf("reached by %q", got)
	}
	if fake.Reachable(nodes[0].ID, 22) {
		t.Error("the port of ssh is open to the world")
	}
	if policies := fake.Policies("skypilot-v1"); !slices.Contains(policies, "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore") {
		t.Errorf("the role has %v", policies)
	}
}

func quotaCode(context.Context, string, bool) string { return "L-1" }

// TestListReservations: what a plan may count on is what a launch is put into.
func TestListReservations(t *testing.T) {
	const m = "p5.48xlarge"
	fake := start(t)
	for _, r := range []awsfake.Reservation{
		{ID: "cr-named", Zone: "us-west-2b", Machine: m, Count: 3},
		{ID: "cr-open", Zone: "us-east-1a", Machine: m, Count: 2, Open: true},
		{ID: "cr-windows", Zone: "us-east-1a", Machine: m, Count: 2, Open: true, Platform: "Windows"},
		{ID: "cr-other", Zone: "us-east-1b", Machine: m, Count: 2},
		{ID: "cr-block", Zone: "us-east-1c", Machine: m, Count: 4, Block: true, End: time.Now().Add(time.Hour)},
		{ID: "cr-over", Zone: "us-east-1c", Machine: m, Count: 4, Block: true, End: time.Now().Add(-time.Hour)},
		{ID: "cr-coming", Zone: "us-east-1c", Machine: m, Count: 4, Block: true, Start: time.Now().Add(time.Hour)},
		{ID: "cr-empty", Zone: "us-east-1b", Machine: m, Count: 0},
	} {
		fake.Reserve(r)
	}
	all := []any{"cr-named", "cr-block", "cr-over", "cr-coming", "cr-empty", "cr-gone"}
	listed := func(section map[string]any, regions []string, want ...string) {
		t.Helper()
		list, err := with(aws.Settings{}).ListReservations(t.Context(), section, regions)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			if r.InstanceType != m || r.Place.Region != r.Place.Zone[:len(r.Place.Zone)-1] {
				t.Errorf("%+v", r)
			}
			got = append(got, fmt.Sprintf("%s %d %d", r.Place.Zone, r.Free, r.Near))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%v in %v: %q, want %q", section, regions, got, want)
		}
	}
	listed(map[string]any{"specific_reservations": all}, nil, "us-east-1c 4 1", "us-west-2b 3 1")
	listed(map[string]any{"specific_reservations": all}, []string{"us-west-2", "nowhere-1"}, "us-west-2b 3 1")
	listed(map[string]any{"prioritize_reservations": true}, nil, "us-east-1a 2 2")
	listed(map[string]any{"specific_reservations": all, "prioritize_reservations": true}, nil, "us-east-1a 2 2", "us-east-1c 4 1", "us-west-2b 3 1")

	// Machines go there without naming an open reservation, and take from what is free.
	for zone := range map[string]bool{"us-east-1a": true, "us-west-2b": true} {
		fake.Fill(zone, m, false, 0)
	}
	p := with(aws.Settings{Prioritize: true, Reservations: []string{"cr-named"}})
	for zone, want := range map[string]string{"us-east-1a": "cr-open", "us-west-2b": "cr-named"} {
		spec := big(1)
		spec.ID.Name, spec.Token, spec.Offer.Region, spec.Offer.Zone = "c"+zone, zone, zone[:len(zone)-1], zone
		nodes, err := p.Launch(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, in := fake.Details(nodes[0].ID); in != want {
			t.Errorf("a machine in %s is in %q", zone, in)
		}
	}
	listed(map[string]any{"specific_reservations": all, "prioritize_reservations": true}, nil, "us-east-1a 1 2", "us-east-1c 4 1", "us-west-2b 2 1")

	// In pages, and where the permission is missing.
	fake.Page = 1
	listed(map[string]any{"specific_reservations": all, "prioritize_reservations": true}, []string{"us-east-1"}, "us-east-1a 1 2", "us-east-1c 4 1")
	fake.Deny(false, "ec2:DescribeCapacityReservations")
	list, err := with(aws.Settings{}).ListReservations(t.Context(), map[string]any{"prioritize_reservations": true}, nil)
	if refused := (*cloud.PermissionError)(nil); len(list) > 0 || !errors.As(err, &refused) || !strings.Contains(err.Error(), "more regions say so") {
		t.Errorf("%v, %v", list, err)
	}
	for s, want := range map[*aws.Settings]bool{{}: false, {Prioritize: true}: true, {Reservations: []string{"cr-named"}}: true} {
		if l, err := with(*s).Lacking(t.Context()); err != nil || slices.Contains(l.Permissions, "ec2:DescribeCapacityReservations") != want {
			t.Errorf("%+v: lacking %v, %v", s, l.Permissions, err)
		}
	}
	// Nobody else asks anything.
	fake.Refuse()
	for _, section := range []map[string]any{nil, {"prioritize_reservations": false, "specific_reservations": []any{}}} {
		if list, err := with(aws.Settings{}).ListReservations(t.Context(), section, nil); list != nil || err != nil {
			t.Errorf("%v, %v", list, err)
		}
	}
}
