package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// GPUDirect lets the GPUs of several machines exchange data through network cards of their
// own, each of which is in another network than the first one. These networks are the
// project's and stay when clusters go: projects may have few networks, and all clusters
// of a region use the same.
//
// https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth

// fabric is what machines of a type have besides their first network card.
type fabric struct {
	plain int // cards of the usual kind (gVNIC), each in a network of its own
	rdma  int // cards for RDMA, each in a subnet of its own of the zone's network for that
}

var fabrics = map[string]fabric{
	"a3-edgegpu-8g": {plain: 4}, "a3-highgpu-8g": {plain: 4}, // GPUDirect-TCPX
	"a3-megagpu-8g":  {plain: 8},                                                // GPUDirect-TCPXO
	"a3-ultragpu-8g": {plain: 1, rdma: 8}, "a4-highgpu-8g": {plain: 1, rdma: 8}, // GPUDirect RDMA
}

// fabric is that of the machines of a launch; the zero value: they have one card.
func (s Settings) fabric(spec cloud.LaunchSpec) fabric {
	if !s.GPUDirect && spec.NetworkTier != "best" {
		return fabric{}
	}
	return fabrics[spec.Offer.InstanceType]
}

// card is a further network card of a machine.
type card struct {
	network, subnet string // their names
	rdma            bool
	first, ranges   int    // its subnet is the first of so many ranges that is free
	url             string // of the subnet
}

// Prefixes of the names of these networks.
const (
	dataNetwork = "skypilot-data-net-"
	rdmaNetwork = "skypilot-rdma-"
)

// Subnets are 10.129.N.0/24, beside all that networks of automatic mode have. A network
// of gVNIC cards has one in each region, out of a block of its own, as no two cards of a
// machine may be in ranges that overlap.
const (
	rangesOfNetwork = 28
	firstRDMARange  = 8 * rangesOfNetwork // those for RDMA have eight in one region
)

func fabricRange(n int) string { return fmt.Sprintf("10.129.%d.0/24", n) }

// The sizes of packets.
//
// https://cloud.google.com/compute/docs/gpus/gpudirect, https://cloud.google.com/vpc/docs/rdma-network-profiles
const (
	dataMTU = 8244
	rdmaMTU = 8896
)

// cards are the further ones of the machines of a launch, without the URLs.
func (s Settings) cards(spec cloud.LaunchSpec) []card {
	f := s.fabric(spec)
	var out []card
	for n := range f.plain {
		network := fmt.Sprint(dataNetwork, n+1)
		out = append(out, card{network: network, subnet: network + "-sub", first: n * rangesOfNetwork, ranges: rangesOfNetwork})
	}
	for n := range f.rdma {
		network := rdmaNetwork + spec.Offer.Zone
		out = append(out, card{network: network, subnet: fmt.Sprintf("%s-sub-%d", network, n), rdma: true, first: firstRDMARange + n, ranges: 1})
	}
	return out
}

// between reports whether a network is one of those between GPUs.
func between(network string) bool {
	return strings.HasPrefix(network, dataNetwork) || strings.HasPrefix(network, rdmaNetwork)
}

// find fills in the URLs of the subnets that a region has, and returns the cards without one.
func find(cards []card, region []subnet) (missing []card) {
	for i, c := range cards {
		n := slices.IndexFunc(region, func(s subnet) bool { return s.Name == c.subnet && path.Base(s.Network) == c.network })
		if n < 0 {
			missing = append(missing, c)
			continue
		}
		cards[i].url = region[n].URL
	}
	return missing
}

// ensureCards finds the subnets of the further cards of a launch's machines, and makes
// those that are missing.
func (d driver) ensureCards(ctx context.Context, a *account, spec cloud.LaunchSpec, s Settings) ([]card, error) {
	cards := s.cards(spec)
	if len(cards) == 0 {
		return nil, nil
	}
	region, err := a.subnets(ctx, a.project, spec.Offer.Region)
	if err != nil {
		return nil, err
	}
	missing := find(cards, region)
	if len(missing) == 0 {
		return cards, nil
	}
	byNetwork := map[string][]card{}
	for _, c := range missing {
		byNetwork[c.network] = append(byNetwork[c.network], c)
	}
	absent, err := d.absentNetworks(ctx, a, byNetwork)
	if err != nil {
		return nil, err
	}
	cloud.ReportWait(ctx, "Google Cloud to make the networks between GPUs")
	var all sync.WaitGroup
	errs := make(chan error, len(byNetwork))
	for network, of := range byNetwork {
		all.Go(func() { errs <- d.makeNetwork(ctx, a, spec.Offer.Place, network, of, absent[network]) })
	}
	all.Wait()
	close(errs)
	for e := range errs {
		if err == nil || !refused(err) { // one that says why
			err = cmp.Or(e, err)
		}
	}
	if err != nil {
		return nil, err
	}
	err = d.persist(ctx, func() (bool, error) {
		region, err := a.subnets(ctx, a.project, spec.Offer.Region)
		missing = find(cards, region)
		return err != nil || len(missing) == 0, err
	})
	if err == nil && len(missing) > 0 {
		err = &rest.NoAnswerError{Cloud: "Google Cloud", Err: fmt.Errorf("the subnet %s was made and is in no list", missing[0].subnet)}
	}
	return cards, err
}

// absentNetworks are those of the networks that do not exist. If the project may not have
// so many more, none is begun with.
func (d driver) absentNetworks(ctx context.Context, a *account, want map[string][]card) (map[string]bool, error) {
	absent := map[string]bool{}
	for network := range want {
		switch _, err := rest.Do[any](ctx, a.compute, "GET", a.on("/global/networks/%s", network), nil); {
		case missing(err):
			absent[network] = true
		case err != nil:
			return nil, err
		}
	}
	quotas, err := a.quotas(ctx, "")
	if err != nil {
		return absent, unknown(ctx, err)
	}
	if why := lacks(quotas, []need{{[]string{"NETWORKS"}, 1}}, len(absent)); why != "" {
		return nil, a.tooFew("", "GPUDirect takes networks of its own: "+why)
	}
	return absent, nil
}

// makeNetwork makes a network with its rules, unless it exists, and its subnets in a region.
func (d driver) makeNetwork(ctx context.Context, a *account, at cloud.Place, network string, subnets []card, absent bool) error {
	rdma := subnets[0].rdma
	if absent {
		body := map[string]any{"name": network, "description": "Made by sky", "autoCreateSubnetworks": false, "mtu": dataMTU, "routingConfig": map[string]any{"routingMode": "GLOBAL"}}
		if rdma { // its profile says the rest
			body = map[string]any{"name": network, "description": "Made by sky", "autoCreateSubnetworks": false, "mtu": rdmaMTU,
				"networkProfile": fmt.Sprintf("projects/%s/global/networkProfiles/%s-vpc-roce", a.project, at.Zone)}
		}
		err := a.ensure(ctx, "/global/networks", body)
		if r, ok := errors.AsType[*refusal](err); rdma && ok && strings.Contains(r.Message, "networkProfile") {
			return &cloud.InvalidError{Place: at, Err: fmt.Errorf("the zone %s has no network for RDMA between GPUs: %w", at.Zone, err)}
		}
		if err != nil {
			return err
		}
	}
	if !rdma { // which has no rules
		if err := d.ensureRule(ctx, a, internalRule(a.project, network)); err != nil {
			return err
		}
	}
	for _, c := range subnets {
		if err := d.makeSubnet(ctx, a, at.Region, c); err != nil {
			return err
		}
	}
	return nil
}

// makeSubnet makes a subnet in a range that the network has in no region. One that is
// taken meanwhile is refused, and the next one is tried.
func (d driver) makeSubnet(ctx context.Context, a *account, region string, c card) error {
	return d.persist(ctx, func() (bool, error) {
		taken, here, err := a.ranges(ctx, region, c)
		if err != nil || here { // another launch was quicker
			return true, err
		}
		free, ok := c.free(taken)
		if !ok {
			return true, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: fmt.Errorf("the network %s has no range of %s to %s left for a subnet in %s; delete those of other regions",
				c.network, fabricRange(c.first), fabricRange(c.first+c.ranges-1), region)}
		}
		err = a.ensure(ctx, "/regions/"+url.PathEscape(region)+"/subnetworks", map[string]any{
			"name": c.subnet, "description": "Made by sky", "network": fmt.Sprintf("projects/%s/global/networks/%s", a.project, c.network), "ipCidrRange": free,
		})
		r, _ := err.(*refusal)
		again := r != nil && (strings.Contains(r.Message, "conflicts with existing subnetwork") || missing(err) || said(err, "resourceNotReady", "RESOURCE_NOT_READY"))
		return !again, err
	})
}

// free is the first of a card's ranges that overlaps none of those taken.
func (c card) free(taken []netip.Prefix) (string, bool) {
	for n := range c.ranges {
		r := fabricRange(c.first + n)
		if !slices.ContainsFunc(taken, netip.MustParsePrefix(r).Overlaps) {
			return r, true
		}
	}
	return "", false
}

// ranges are those of the subnets of a card's network in all regions, and whether the card's
// is among them.
func (a *account) ranges(ctx context.Context, region string, c card) (all []netip.Prefix, here bool, err error) {
	query := url.Values{"maxResults": {"500"}, "returnPartialSuccess": {"true"}}
	err = pages(ctx, a.compute, a.on("/aggregated/subnetworks"), query, func(page struct {
		Items map[string]struct {
			Subnets []struct {
				Name    string `json:"name"`
				Network string `json:"network"`
				Range   string `json:"ipCidrRange"`
			} `json:"subnetworks"`
		} `json:"items"`
		Next string `json:"nextPageToken"`
	}) string {
		for scope, held := range page.Items {
			for _, s := range held.Subnets {
				if path.Base(s.Network) != c.network {
					continue
				}
				here = here || path.Base(scope) == region && s.Name == c.subnet
				if p, err := netip.ParsePrefix(s.Range); err == nil {
					all = append(all, p)
				}
			}
		}
		return page.Next
	})
	return all, here, err
}
