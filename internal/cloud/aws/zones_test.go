package aws_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
)

// TestZonesWithoutSuchMachines: an offer that is for a whole region is had in the
// zones that have it, whichever is asked first.
func TestZonesWithoutSuchMachines(t *testing.T) {
	const m = "p5.48xlarge"
	for _, tt := range []struct {
		name          string
		without, full []string
		zone          string // where it ends up
		says          string // else
	}{
		{name: "the first that is asked", without: []string{"c"}, zone: "us-east-1b"},
		{name: "all but the last", without: []string{"c", "b"}, zone: "us-east-1a"},
		{name: "one, and one is full", without: []string{"c"}, full: []string{"b"}, zone: "us-east-1a"},
		{name: "one is full, and one", without: []string{"b"}, full: []string{"c"}, zone: "us-east-1a"},
		{name: "all that are not full", without: []string{"c", "a"}, full: []string{"b"}, says: "no capacity in aws/us-east-1: InsufficientInstanceCapacity"},
		{name: "all", without: []string{"c", "b", "a"}, says: "aws/us-east-1 cannot do this: in none of us-east-1a, us-east-1b, us-east-1c; Unsupported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := start(t)
			for _, zone := range tt.without {
				fake.Without("us-east-1"+zone, m)
			}
			for _, zone := range tt.full {
				fake.Fill("us-east-1"+zone, m, false, 0)
			}
			nodes, err := with(aws.Settings{}).Launch(t.Context(), big(2))
			if tt.says != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.says) {
					t.Errorf("%v, want %s", err, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				if n.Place.Zone != tt.zone {
					t.Errorf("in %s, want %s", n.Place.Zone, tt.zone)
				}
			}
		})
	}
	// A zone that was asked for by name is the only one.
	fake := start(t)
	fake.Without("us-east-1b", m)
	spec := big(1)
	spec.Offer.Zone = "us-east-1b"
	var invalid *cloud.InvalidError
	if _, err := with(aws.Settings{}).Launch(t.Context(), spec); !errors.As(err, &invalid) || invalid.Place.Zone != "us-east-1b" {
		t.Errorf("%v", err)
	}
}

// TestSpotMachinesThatPowerOffEnd: nobody could start them again.
func TestSpotMachinesThatPowerOffEnd(t *testing.T) {
	fake := start(t)
	spec := big(1)
	spec.Offer.Spot = true
	nodes, err := with(aws.Settings{}).Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	fake.Halt(nodes[0].ID)
	if left := slices.DeleteFunc(fake.Inventory(), shared.MatchString); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestWhatIsMissingIsMadeBesideTheRest: also where the plan leaves the zone open
// and another one would be tried first.
func TestWhatIsMissingIsMadeBesideTheRest(t *testing.T) {
	const m = "p5.48xlarge"
	fake := start(t)
	fake.Fill("us-east-1c", m, false, 0)
	p := with(aws.Settings{})
	nodes, err := p.Launch(t.Context(), big(2))
	if err != nil {
		t.Fatal(err)
	}
	fake.Kill(nodes[1].ID)
	fake.Restore() // and there is room everywhere
	spec := big(2)
	spec.Token = "another"
	if nodes, err = p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Place.Zone != "us-east-1b" {
			t.Errorf("%s is in %s", n.ID, n.Place.Zone)
		}
	}
}
