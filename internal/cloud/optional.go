package cloud

import (
	"context"
	"maps"
	"strings"
	"time"
)

// Rarer powers of providers, found with [As].

// Images finds the image of a tag such as "skypilot:custom-cpu-ubuntu" in a region. The
// price lists of clouds know them.
type Images func(ctx context.Context, tag, region string) (id string, ok bool)

// PortOpener is a provider that can open ports of clusters that run.
type PortOpener interface {
	// OpenPorts lets the world reach the ports ("8080", "8000-8010") of the
	// cluster's nodes, besides those that are open already.
	OpenPorts(ctx context.Context, id ClusterID, ports []string) error
}

// SettledOffers is a provider whose offers depend on its settings, as on a market of
// machines that are not all good enough.
type SettledOffers interface {
	// OffersWith is Offers with the section of the configuration that holds.
	OffersWith(ctx context.Context, settings map[string]any) ([]Offer, error)
}

// LaunchLimiter is a provider whose Launch waits for more than machines to boot:
// queues, autoscalers, images. What earlier launches took says nothing about that.
type LaunchLimiter interface {
	// LaunchLimit is how long Launch may take, which it sees to by itself: less
	// must not be granted. [Forever]: there is no limit; 0: it takes what it usually
	// takes.
	LaunchLimit(spec LaunchSpec) time.Duration
}

// Forever is longer than anybody waits, and short enough to be added to a time.
const Forever = 10 * 365 * 24 * time.Hour

// Endpointer is a provider whose clusters' open ports are not reached at their
// head's address.
type Endpointer interface {
	// Endpoints is where each open port is reached, as host:port or as a URL.
	// A port whose way in is not ready yet is left out, and why says what is
	// missing.
	Endpoints(ctx context.Context, id ClusterID, ports []int) (at map[int]string, why string, err error)
}

// Configured is a provider that can be asked for more under some configurations.
type Configured interface {
	// LacksWith is Features().Lacks under the cloud's section of a configuration.
	LacksWith(section map[string]any) map[Feature]string
}

// MountExplainer is a provider whose nodes can mount buckets in several ways.
type MountExplainer interface {
	// MountsBy is how they do under the cloud's section of a configuration, for the plan;
	// "": they do not.
	MountsBy(section map[string]any) string
}

// OffSwitch is a provider whose machines can switch themselves off
// (Reach.Machine is [MachinePowerOff] or [MachineMarksEnd]), and that can be told what that means.
type OffSwitch interface {
	// WhenOff says what becomes of the cluster's machines that switch themselves
	// off from now on: with ends they are terminated as by Terminate, else they
	// are stopped, which is how machines begin. It is asked before an autodown
	// is armed, so that it works when nobody is there any more.
	WhenOff(ctx context.Context, id ClusterID, ends bool) error
}

// AvailabilityProber is a provider that can tell without renting whether an
// offer could be had. The answer is a hint: it may be wrong a moment later.
type AvailabilityProber interface {
	Available(ctx context.Context, offer Offer, nodes int) (Availability, error)
}

// Availability is what a cloud says about the chance of a launch.
type Availability struct {
	Verdict AvailabilityVerdict `json:"verdict"`
	Stock   Stock               `json:"stock,omitempty"` // how much there is, from clouds that say so
	Reason  string              `json:"reason,omitempty"`
	// Price is what a node costs an hour now, in dollars, if the cloud says that this is more
	// than the offer's price; 0: it does not say so.
	Price float64   `json:"price,omitempty"`
	At    time.Time `json:"at"` // when we asked, by our clock
}

// Stock is how much of an offer a cloud has, in its own judgement; "": it does not say.
type Stock string

const (
	StockHigh   Stock = "high"
	StockMedium Stock = "medium"
	StockLow    Stock = "low"
)

// StockOf is the stock that a cloud's word for it means, whatever its case.
func StockOf(word string) Stock {
	switch s := Stock(strings.ToLower(word)); s {
	case StockHigh, StockMedium, StockLow:
		return s
	}
	return ""
}

// AvailabilityVerdict is "available", "none" or "unknown".
type AvailabilityVerdict string

const (
	AvailableNow        AvailabilityVerdict = "available"
	AvailableNone       AvailabilityVerdict = "none"
	AvailabilityUnknown AvailabilityVerdict = "unknown"
)

// AccountLister is a provider whose credentials may reach several accounts (projects,
// subscriptions), of which one is in use.
type AccountLister interface {
	// ListAccounts lists an installation's machines in all of them. Accounts that cannot be
	// read are named and do not keep the others from being listed. What is listed is found by
	// Nodes and Terminate afterwards, also in accounts that are not in use.
	ListAccounts(ctx context.Context, installation string) ([]Node, []UnreadAccount, error)
}

// UnreadAccount is an account whose machines could not be listed.
type UnreadAccount struct {
	Name  string
	Found bool // only the credentials know of it: it is not in use, nor in the configuration
	Err   error
}

// SpotNotices is a provider that tells ahead which spot nodes will be taken
// back.
type SpotNotices interface {
	// SpotNotices are those of a cluster, or with a zero Name of all that the installation has.
	SpotNotices(ctx context.Context, id ClusterID) ([]SpotNotice, error)
}

// SpotNotice says that a node will end.
type SpotNotice struct {
	NodeID string    `json:"node_id"`
	Rank   int       `json:"rank"`
	At     time.Time `json:"at"` // by the cloud's clock
}

// PlaceChecker is a provider whose regions have credentials of their own.
type PlaceChecker interface {
	// CheckPlaces tries the credentials of the regions that the settings let be used, or of
	// the one that is named. The error is about all of them.
	CheckPlaces(ctx context.Context, only string, settings func(region string) map[string]any) ([]CheckedPlace, error)
}

// CheckedPlace is what came of trying the credentials of a region.
type CheckedPlace struct {
	Region string
	Who    string // whose account they are, if that is known
	Err    error  // as of Provider.Check
}

// PermissionReader is a provider that can find out, without changing anything,
// what its credentials may not do.
type PermissionReader interface {
	// Lacking lists the permissions that sky needs and that are clearly refused.
	Lacking(ctx context.Context) (Lack, error)
}

// Lack is what credentials may not do, in the cloud's words, and how to mend
// it.
type Lack struct {
	Permissions []string
	Fix         string
}

// QuotaReader is a provider that knows how much the account may have.
type QuotaReader interface {
	Quotas(ctx context.Context, region string) ([]Quota, error)
}

// Quota is one limit of an account.
type Quota struct {
	Place Place  `json:"place"`
	Name  string `json:"name"`  // in the cloud's words
	Limit int    `json:"limit"` // -1: none
	Used  int    `json:"used"`
}

// ReservationLister is a provider whose account can hold reservations: machines that are
// paid for already.
type ReservationLister interface {
	// ListReservations lists the reservations with free machines that a launch under the
	// section of the configuration uses: those that it names, and those that every machine
	// of the account uses if it prioritizes them. Other sections are answered at once, with nil and
	// without a call. Only these regions are concerned; nil: all. What could be listed is
	// also returned with an error.
	ListReservations(ctx context.Context, section map[string]any, regions []string) ([]Reservation, error)
}

// Reservation is a number of machines that are paid for already.
type Reservation struct {
	Place        Place // an empty Zone holds in the whole region
	InstanceType string
	// Accelerators are those that are attached to each machine; nil: those of its type.
	Accelerators map[string]float64
	Free         int
	// Near is how clusters of several nodes use it whose network is fast (network_tier: best),
	// so that the nodes have to be near each other.
	Near NearUse
}

// NearUse is how many nodes that have to be near each other are put into a reservation.
type NearUse int

const (
	NearFree  NearUse = iota // as many as are free
	NearWhole                // all of a cluster, or none
	NearNone
)

// Covers reports whether machines of the offer are put into the reservation.
func (r *Reservation) Covers(o *Offer) bool {
	return !o.Spot && r.Place.Cloud == o.Cloud && strings.EqualFold(r.InstanceType, o.InstanceType) &&
		(r.Place.Region == "" || r.Place.Region == o.Region) && (r.Place.Zone == "" || r.Place.Zone == o.Zone) &&
		(r.Accelerators == nil || maps.Equal(r.Accelerators, o.Accelerators))
}

// Pacer is a provider that knows how often its cloud may be called; others are
// called at a pace that suits most.
type Pacer interface {
	// Pace is calls of this interface a second, and how many can be saved up; 0:
	// as often as one likes.
	Pace() (perSecond float64, burst int)
}
