package aws_test

import (
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/cloud/aws/awsfake"
)

// paged are the calls that sky makes whose answers have pages, by the API
// reference. The others that list things have none: DescribeRegions,
// DescribeAvailabilityZones, DescribePlacementGroups. DescribeImages and
// DescribeInstanceTypes have none either when they are asked for single things.
var paged = []string{
	"DescribeCapacityReservations", "DescribeImages", "DescribeInstances", "DescribeRouteTables",
	"DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs", "SimulatePrincipalPolicy",
}

// TestListsAreReadToTheirEnd: with one entry a page, the first page empty, each
// of those calls is seen in pages, none is left half read, and all that has to
// be found is found.
func TestListsAreReadToTheirEnd(t *testing.T) {
	fake := start(t)
	fake.Page, fake.EmptyPages = 1, true
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		fake.Reserve(awsfake.Reservation{ID: "cr-" + zone, Zone: zone, Machine: "p5.48xlarge", Count: 1})
		fake.Seed("us-east-1", zone, "m6i.large", cloud.ClusterID{Installation: "i", Name: "other", Hash: "h"}.Tags())
	}
	for _, settings := range []aws.Settings{
		{Reservations: []string{"cr-us-east-1c"}},
		{VPC: "vpc-us-east-1"}, // the last of the list
	} {
		p := with(settings)
		if _, err := p.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Lacking(t.Context()); err != nil {
			t.Fatal(err)
		}
		spec := big(2)
		spec.NetworkTier, spec.Ports, spec.Token = "best", []string{"8080"}, "t "+settings.VPC
		spec.Offer.Zone = "us-east-1c"
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		nodes, err := p.Launch(t.Context(), spec)
		if err != nil || len(nodes) != 2 {
			t.Fatalf("%v, %v", nodes, err)
		}
		if list, err := p.Nodes(t.Context(), spec.ID); err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
		if list, err := p.Nodes(t.Context(), cloud.ClusterID{}); err != nil || len(list) != 5 {
			t.Errorf("all that there is: %v, %v", list, err)
		}
		if err := p.OpenPorts(t.Context(), spec.ID, []string{"9090"}); err != nil {
			t.Error(err)
		}
		if err := p.Stop(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
	}
	if got := fake.Paged(); !slices.Equal(got, paged) {
		t.Errorf("seen in pages: %v\nwant %v", got, paged)
	}
	if half := fake.Unread(); len(half) > 0 {
		t.Errorf("begun and not read to the end: %v", half)
	}
}
