// Package cloudtest is the contract of package cloud as tests: what everything
// above relies on, asked of a provider as its callers would.
//
// A provider runs them against its real backend where one can run, else against
// a fake that behaves:
//
//	func TestConformance(t *testing.T) {
//		cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
//			fake := cudofake.New()
//			h := fake.Harness(func() cloud.Provider { return cudo.New(cudo.Options{Transport: fake}) })
//			h.Spec = smallest
//			return h
//		})
//	}
//
// Some behaviours need the cloud to do something: to fill up, to lose an
// answer. The hooks of the [Harness] make it. A behaviour whose hook is missing,
// or whose feature the provider says it lacks, is skipped and says so.
package cloudtest

import (
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Harness is a provider over a cloud of its own, and what can be made to happen
// there. A nil hook means that it cannot.
type Harness struct {
	Provider cloud.Provider
	// Spec is the smallest launch: its Offer, DiskGB, AuthorizedKey and so on.
	// ID, Nodes and Token are the suite's.
	Spec cloud.LaunchSpec
	// Spot is an offer of a spot machine.
	Spot *cloud.Offer
	// Elsewhere is an offer like Spec's in another zone or region.
	Elsewhere *cloud.Offer
	// Beside is an offer like Spec's in another zone of the same region.
	Beside *cloud.Offer
	// Another makes a provider over the same cloud, as a restarted server has.
	Another func(t testing.TB) cloud.Provider
	// OneInstallation says why a cloud of this kind only ever has one.
	OneInstallation string
	// Unprotected says why nothing but machines is made for a cluster that has ports.
	Unprotected string
	// Unasked says why a launch does not ask first whether there is room, though the cloud says it.
	Unasked string
	// OffCosts says why machines that are off cost money.
	OffCosts string
	// Many is how many clusters are listed at once; 0: 300.
	Many int

	Restore     func(t testing.TB)                                  // ends what Throttle, Refuse, Forbid, Cut, Hang, Lie and so on began
	Fill        func(t testing.TB, offer cloud.Offer, left int)     // only so many more of the offer are to be had
	Quota       func(t testing.TB, offer cloud.Offer, left int)     // the account may have only so many more
	Raise       func(t testing.TB, by float64)                      // all prices are so many times those of the offers
	Throttle    func(t testing.TB)                                  // every call is one too many
	Refuse      func(t testing.TB)                                  // the credentials are no longer good
	Forbid      func(t testing.TB)                                  // the credentials may look and not touch
	Cut         func(t testing.TB)                                  // the cloud cannot be reached
	Hang        func(t testing.TB)                                  // no call is answered
	Slow        func(t testing.TB, boot time.Duration)              // machines take that long to boot
	LoseAnswers func(t testing.TB, to Effect, times int)            // calls have their effect, the answers are lost
	HideNew     func(t testing.TB, lists int)                       // new machines are missing in their first lists
	HideFor     func(t testing.TB, d time.Duration)                 // and in all lists for that long
	Die         func(t testing.TB, call int, dead func())           // the process ends at its so-manieth call, as in Death
	Lie         func(t testing.TB, n cloud.Node, state string)      // the cloud says a word nobody knows
	Kill        func(t testing.TB, n cloud.Node)                    // the machine is destroyed
	Halt        func(t testing.TB, n cloud.Node)                    // the machine switches itself off
	Preempt     func(t testing.TB, n cloud.Node, in time.Duration)  // the spot machine is taken back
	Skew        func(t testing.TB, by time.Duration)                // the cloud's clock goes wrong
	Seed        func(t testing.TB, id cloud.ClusterID)              // a machine of that cluster, without launching
	Write       func(t testing.TB, n cloud.Node, name, data string) // a file onto the machine's disk
	Read        func(t testing.TB, n cloud.Node, name string) string
	MadeFrom    func(t testing.TB, n cloud.Node) string   // the id of what the machine's disk was made of
	Login       func(t testing.TB, n cloud.Node) error    // a command runs on the machine
	Odd         func(t testing.TB, to Effect)             // calls are refused with OddCode
	Lacking     func(t testing.TB) (calls func() int)     // what creations need is not found; how many were asked for
	Linger      func(t testing.TB, lists int)             // what is ending is listed as before so often, and not ended twice: OddCode
	Conflict    func(t testing.TB, times int)             // what protects machines is in use still so often
	Stick       func(t testing.TB)                        // new machines stay in a state before they run
	Bare        func(t testing.TB)                        // new machines have no private address
	Billed      func(t testing.TB, n cloud.Node) bool     // the machine costs money now
	Inventory   func(t testing.TB) []string               // all machines and other things that exist, in the cloud's own view
	OpenPorts   func(t testing.TB, n cloud.Node) []string // that the world may reach, sorted
	// Limited makes a provider with its default options over a cloud that keeps its
	// documented limits, and reports how many calls went over them.
	Limited func(t testing.TB) (p cloud.Provider, over func() int)
}

// Effect is what a call does.
type Effect string

const (
	Creating    Effect = "creating"
	Starting    Effect = "starting"
	Stopping    Effect = "stopping"
	Terminating Effect = "terminating"
	Imaging     Effect = "imaging"  // an image of a disk is made
	Dropping    Effect = "dropping" // and removed
)

// Behaviour is one thing a provider does.
type Behaviour struct {
	Name  string
	needs []string // hooks by field name, features by their name
	check func(s *suite)
}

// Behaviours is the whole contract.
func Behaviours() []Behaviour {
	var all []Behaviour
	for _, part := range [][]Behaviour{descriptions, launches, stops, terminations, listings, losses, refusals, oddities, troubles, crashes, cancellations, names, powers, clones} {
		all = append(all, part...)
	}
	return all
}

// Inapplicable says why a harness cannot show the behaviour; "" if it can.
func (b Behaviour) Inapplicable(h Harness) string {
	var missing []string
	for _, need := range b.needs {
		switch need {
		case "installations":
			if h.OneInstallation != "" {
				missing = append(missing, "there is one installation: "+h.OneInstallation)
			}
		case "free when off":
			if h.OffCosts != "" {
				missing = append(missing, "machines that are off cost money: "+h.OffCosts)
			}
		case "protection":
			if h.Unprotected != "" {
				missing = append(missing, "machines have no protection: "+h.Unprotected)
			}
		case string(cloud.FeatureStop), string(cloud.FeatureMultiNode), string(cloud.FeatureSpot), string(cloud.FeaturePorts), string(cloud.FeatureCloneDisk):
			if why, lacks := h.Provider.Features().Lacks[cloud.Feature(need)]; lacks {
				missing = append(missing, "the provider lacks "+need+": "+why)
			} else if c, ok := cloud.As[cloud.DiskCloner](h.Provider); ok && need == string(cloud.FeatureCloneDisk) {
				o := h.Spec.Offer
				if why := c.CannotClone(cloud.DiskImage{Place: o.Place, InstanceType: o.InstanceType}, o); why != "" {
					missing = append(missing, "such machines start from no image: "+why)
				}
			}
		default:
			if reflect.ValueOf(h).FieldByName(need).IsNil() {
				missing = append(missing, "the harness has no "+need)
			}
		}
	}
	return strings.Join(missing, "; ")
}

// Check asks a provider for the behaviour.
func (b Behaviour) Check(t testing.TB, h Harness) { b.check(newSuite(t, h)) }

// Run asks for every behaviour, each of a harness of its own.
func Run(t *testing.T, harness func(testing.TB) Harness) {
	run(t, 1, Behaviours(), harness, inRealTime)
}

// RunBeside is Run with several behaviours at once: for harnesses that share
// nothing and mostly wait.
func RunBeside(t *testing.T, harness func(testing.TB) Harness) {
	run(t, 8, Behaviours(), harness, inRealTime)
}

// RunVirtual is Run in virtual time: the harness must do no real I/O, and
// waiting for it takes no time.
func RunVirtual(t *testing.T, harness func(testing.TB) Harness) {
	run(t, 1, Behaviours(), harness, inVirtualTime)
}

// Crashes is RunVirtual for what a process leaves that dies: for launches which make
// things that those of the whole contract do without.
func Crashes(t *testing.T, harness func(testing.TB) Harness) {
	run(t, 1, crashes, harness, inVirtualTime)
}

func inVirtualTime(t *testing.T, f func(testing.TB)) {
	synctest.Test(t, func(t *testing.T) { f(t) })
}

func inRealTime(t *testing.T, f func(testing.TB)) { f(t) }

// run asks for the behaviours, n at a time. It does not use t.Parallel, which
// runs as many tests as there are processors even if all of them wait.
func run(t *testing.T, n int, behaviours []Behaviour, harness func(testing.TB) Harness, around func(*testing.T, func(testing.TB))) {
	var shown, skipped atomic.Int32
	one := func(b Behaviour) {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			why := ""
			around(t, func(t testing.TB) {
				h := harness(t)
				if why = b.Inapplicable(h); why == "" {
					b.Check(t, h)
				}
			})
			if why != "" {
				skipped.Add(1)
				t.Skip("not applicable: " + why)
			}
			shown.Add(1)
		})
	}
	next := make(chan Behaviour)
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			for b := range next {
				one(b)
			}
		})
	}
	for _, b := range behaviours {
		next <- b
	}
	close(next)
	running.Wait()
	t.Logf("%d behaviours shown, %d not applicable", shown.Load(), skipped.Load())
}
