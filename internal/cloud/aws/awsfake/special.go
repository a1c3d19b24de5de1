package awsfake

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Capacity that is paid for ahead, machines that are close together, and fast
// network interfaces.

// Reservation is a capacity reservation, or a capacity block.
type Reservation struct {
	ID, Zone, Machine string
	Block             bool
	Open              bool   // machines are put into it that name no reservation
	Platform          string // "": Linux/UNIX
	Count             int
	Start             time.Time // zero: it has begun
	End               time.Time // zero: never
}

type placement struct {
	name, region string
	tags         map[string]string
	unknown      int // to so many calls
}

// adapters is how many EFAs machines have; absent: none.
var adapters = map[string]int{"p4d.24xlarge": 4, "p5.48xlarge": 32, "p6-b300.48xlarge": 16}

// plainFirst are machines whose first network card can have no EFA.
var plainFirst = map[string]bool{"p6-b300.48xlarge": true}

// published are images of Amazon's.
var published = []string{
	"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20250808",
	"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260101",
}

// linux is the platform of the machines that there are.
const linux = "Linux/UNIX"

// openFor are the open reservations of machines that name none, one for each of so many
// machines that finds room.
func (c *Cloud) openFor(where, machine string, n int, f url.Values) (in []*Reservation) {
	if f.Get("CapacityReservationSpecification.CapacityReservationPreference") != "open" || f.Get("InstanceMarketOptions.MarketType") == "spot" {
		return nil
	}
	for _, r := range c.reservations {
		if r.Open && r.Zone == where && r.Machine == machine && r.state() == "active" && cmp.Or(r.Platform, linux) == linux {
			in = append(in, slices.Repeat([]*Reservation{r}, min(c.free(r), n-len(in)))...)
		}
	}
	return in
}

// Reserve adds a reservation.
func (c *Cloud) Reserve(r Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reservations = append(c.reservations, &r)
}

// Details says what was asked for a machine: its disk, its network interfaces,
// its placement group, its reservation.
func (c *Cloud) Details(id string) (disk string, nics []string, placement, reservation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(id)
	if i == nil {
		return
	}
	if i.held != nil {
		reservation = i.held.ID
	}
	return i.disk, i.kinds, i.placement, reservation
}

func (r *Reservation) state() string {
	if time.Now().Before(r.Start) {
		return "scheduled"
	}
	if !r.End.IsZero() && time.Now().After(r.End) {
		return "expired"
	}
	return "active"
}

// free is how many more machines fit. The caller holds mu.
func (c *Cloud) free(r *Reservation) int {
	used := 0
	for _, i := range c.instances {
		if i.held == r && i.alive() {
			used++
		}
	}
	return r.Count - used
}

func (c *Cloud) describeReservations(region string, f url.Values) (answer any, no *fault) {
	type one struct {
		ID        string `xml:"capacityReservationId"`
		Type      string `xml:"instanceType"`
		Zone      string `xml:"availabilityZone"`
		ZoneID    string `xml:"availabilityZoneId"`
		State     string `xml:"state"`
		Total     int    `xml:"totalInstanceCount"`
		Available int    `xml:"availableInstanceCount"`
		Start     string `xml:"startDate,omitempty"`
		End       string `xml:"endDate,omitempty"`
		Kind      string `xml:"reservationType"`
		Criteria  string `xml:"instanceMatchCriteria"`
		Platform  string `xml:"instancePlatform"`
		Tenancy   string `xml:"tenancy"`
	}
	var out struct {
		Set  item[one] `xml:"capacityReservationSet"`
		Next string    `xml:"nextToken,omitempty"`
	}
	var all []one
	for _, r := range c.reservations {
		n := slices.IndexFunc(zonesOf(region), func(z zone) bool { return z.name == r.Zone })
		if n < 0 || !fits(filtersOf(f), nil, map[string]string{"instance-type": r.Machine, "state": r.state()}) {
			continue
		}
		o := one{ID: r.ID, Type: r.Machine, Zone: r.Zone, ZoneID: zonesOf(region)[n].id, State: r.state(), Total: r.Count, Available: c.free(r), Kind: "default",
			Criteria: "targeted", Platform: cmp.Or(r.Platform, linux), Tenancy: "default"}
		if r.Open {
			o.Criteria = "open"
		}
		if r.Block {
			o.Kind = "capacity-block"
		}
		if !r.Start.IsZero() {
			o.Start = r.Start.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		if !r.End.IsZero() {
			o.End = r.End.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		if o.State == "scheduled" {
			o.Available = 0
		}
		all = append(all, o)
	}
	out.Set.Item, out.Next, no = page(c, region, "DescribeCapacityReservations", f, all)
	return out, no
}

func (c *Cloud) describeTypes(region string, f url.Values) (answer any, no *fault) {
	type one struct {
		Type      string `xml:"instanceType"`
		Supported bool   `xml:"networkInfo>efaSupported"`
		Most      int    `xml:"networkInfo>efaInfo>maximumEfaInterfaces,omitempty"`
	}
	var out struct {
		Set  item[one] `xml:"instanceTypeSet"`
		Next string    `xml:"nextToken,omitempty"`
	}
	var all []one
	for _, t := range indexed(f, "InstanceType") {
		if !slices.Contains(machines, t) {
			return nil, refuse(http.StatusBadRequest, "InvalidInstanceType", "The following supplied instance types do not exist: [%s]", t)
		}
		all = append(all, one{t, adapters[t] > 0, adapters[t]})
	}
	out.Set.Item, out.Next, no = page(c, region, "DescribeInstanceTypes", f, all)
	return out, no
}

// admitInterfaces refuses what does not go together, and finds the reservation
// that is asked for.
func (c *Cloud) admitInterfaces(region, where, machine string, n int, f url.Values) (*Reservation, []string, *fault) {
	wrong := func(format string, args ...any) (*Reservation, []string, *fault) {
		return nil, nil, refuse(http.StatusBadRequest, "InvalidParameterCombination", format, args...)
	}
	var nics []string
	efas := 0
	for k := 1; f.Has(fmt.Sprintf("NetworkInterface.%d.SubnetId", k)); k++ {
		kind := f.Get(fmt.Sprintf("NetworkInterface.%d.InterfaceType", k))
		if strings.HasPrefix(kind, "efa") {
			efas++
		}
		nics = append(nics, kind)
	}
	if plainFirst[machine] && strings.HasPrefix(nics[0], "efa") {
		return wrong("EFA interfaces are not supported on network card 0 of %s.", machine)
	}
	if efas > adapters[machine] {
		return wrong("%s does not support %d EFA interfaces", machine, efas)
	}
	if len(nics) > 1 {
		for k := range nics {
			if f.Has(fmt.Sprintf("NetworkInterface.%d.AssociatePublicIpAddress", k+1)) {
				return wrong("The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.")
			}
		}
		cards := map[string]bool{"0": true}
		for k := 2; k <= len(nics); k++ {
			card := f.Get(fmt.Sprintf("NetworkInterface.%d.NetworkCardIndex", k))
			if cards[card] || f.Get(fmt.Sprintf("NetworkInterface.%d.DeviceIndex", k)) != "1" {
				return wrong("Network interfaces must be on different network cards: %s", card)
			}
			cards[card] = true
		}
	}
	if name := f.Get("Placement.GroupName"); name != "" && c.placements[region+" "+name] == nil {
		return nil, nil, refuse(http.StatusBadRequest, "InvalidPlacementGroup.Unknown", "The placement group '%s' is unknown.", name)
	}
	if name := f.Get("Placement.GroupName"); name != "" && unknown(&c.placements[region+" "+name].unknown) {
		return nil, nil, refuse(http.StatusBadRequest, "InvalidPlacementGroup.Unknown", "The placement group '%s' is unknown.", name)
	}
	block := f.Get("InstanceMarketOptions.MarketType") == "capacity-block"
	target := f.Get("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId")
	if f.Get("InstanceMarketOptions.MarketType") == "spot" && (target != "" || f.Has("CapacityReservationSpecification.CapacityReservationPreference")) {
		return wrong("Spot Instances cannot be launched into a Capacity Reservation.")
	}
	if target == "" {
		if block {
			return wrong("You must specify a Capacity Block when MarketType is capacity-block")
		}
		return nil, nics, nil
	}
	at := slices.IndexFunc(c.reservations, func(r *Reservation) bool {
		return r.ID == target && slices.ContainsFunc(zonesOf(region), func(z zone) bool { return z.name == r.Zone })
	})
	if at < 0 {
		return nil, nil, refuse(http.StatusBadRequest, "InvalidCapacityReservationId.NotFound", "The capacity reservation ID '%s' does not exist", target)
	}
	r := c.reservations[at]
	switch {
	case r.Block != block:
		return wrong("MarketType does not fit the reservation %s", target)
	case r.Machine != machine || r.Zone != where:
		return wrong("The instance type or Availability Zone does not match the reservation %s", target)
	case r.state() != "active":
		return nil, nil, refuse(http.StatusBadRequest, "InvalidCapacityReservationState", "The capacity reservation %s is %s", target, r.state())
	case c.free(r) < n:
		return nil, nil, refuse(http.StatusBadRequest, "ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible and available capacity for this request.")
	}
	return r, nics, nil
}

func (c *Cloud) placementGroups(region, action string, f url.Values) (any, *fault) {
	name := f.Get("GroupName")
	key := region + " " + name
	yes := struct {
		Return bool `xml:"return"`
	}{true}
	switch action {
	case "CreatePlacementGroup":
		if c.placements[key] != nil {
			return nil, refuse(http.StatusBadRequest, "InvalidPlacementGroup.Duplicate", "The placement group '%s' already exists.", name)
		}
		c.placements[key] = &placement{name, region, tagsOf(f, "placement-group"), c.unsettled}
		return yes, nil
	case "DeletePlacementGroup":
		if c.placements[key] == nil || unknown(&c.placements[key].unknown) {
			return nil, refuse(http.StatusBadRequest, "InvalidPlacementGroup.Unknown", "The placement group '%s' is unknown.", name)
		}
		if slices.ContainsFunc(c.instances, func(i *instance) bool { return i.placement == name && i.region == region && i.state != "terminated" }) {
			return nil, refuse(http.StatusBadRequest, "InvalidPlacementGroup.InUse", "The placement group '%s' is in use and may not be deleted.", name)
		}
		delete(c.placements, key)
		return yes, nil
	}
	type one struct {
		Name     string    `xml:"groupName"`
		Strategy string    `xml:"strategy"`
		Tags     item[tag] `xml:"tagSet"`
	}
	var out struct {
		Set item[one] `xml:"placementGroupSet"`
	}
	for _, p := range c.placements {
		if p.region == region && !unknown(&p.unknown) && fits(filtersOf(f), p.tags, nil) {
			out.Set.Item = append(out.Set.Item, one{p.name, "cluster", item[tag]{tagSet(p.tags)}})
		}
	}
	return out, nil
}
