package provision

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

var update = flag.Bool("update", false, "write what scenarios print into their files")

// TestScenarios plays the stories of failover in testdata/planner. A story is a
// list of commands, each with what it prints below "----":
//
//	offers          lines of PLACE MACHINE PRICE [spot]; a line "then" begins the next tier
//	lately          lines of OUTCOME PLACE|* MACHINE|* [spot|on-demand]: refusals that are remembered
//	next            the next offer
//	refused KIND [PLACE]   the offer was refused; PLACE is what the error names
//	rose PRICE      the offer costs that now; the next offer
//	rest            every offer that is still tried, if all are refused for want of room
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/planner/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("the story goes otherwise:\n%s", got)
		})
	}
}

// play runs a story and returns it with what its commands print.
func play(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var s story
	for i, part := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		command, _, _ := strings.Cut(part+"\n", "----\n")
		out.WriteString(command)
		if strings.HasPrefix(command, "#") {
			continue
		}
		out.WriteString("----\n")
		printed, err := s.do(strings.TrimRight(command, "\n"))
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if printed != "" {
			out.WriteString(printed + "\n")
		}
	}
	return out.String()
}

type story struct {
	tiers  [][]cloud.Offer
	lately []Refusal
	plan   *Planner
	at     cloud.Offer
}

func (s *story) do(command string) (string, error) {
	head, body, _ := strings.Cut(command, "\n")
	args := strings.Fields(head)
	if s.plan == nil && args[0] != "offers" && args[0] != "lately" {
		s.plan = NewPlanner(s.tiers, s.lately, nil)
	}
	switch args[0] {
	case "offers":
		s.tiers = [][]cloud.Offer{nil}
		for line := range strings.Lines(body) {
			if strings.TrimSpace(line) == "then" {
				s.tiers = append(s.tiers, nil)
				continue
			}
			f := strings.Fields(line)
			price, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return "", err
			}
			last := len(s.tiers) - 1
			s.tiers[last] = append(s.tiers[last], cloud.Offer{Place: place(f[0]), InstanceType: f[1], HourlyPrice: price, Spot: len(f) > 3})
		}
		return "", nil
	case "lately":
		for line := range strings.Lines(body) {
			f := strings.Fields(line)
			b := cloud.Block{}
			if f[1] != "*" {
				b = cloud.BlockPlace(place(f[1]))
			}
			if f[2] != "*" {
				b.InstanceType = f[2]
			}
			if len(f) > 3 {
				spot := f[3] == "spot"
				b.Spot = &spot
			}
			s.lately = append(s.lately, Refusal{Block: b, Outcome: f[0]})
		}
		return "", nil
	case "next":
		return s.next(), nil
	case "refused":
		var named cloud.Place
		if len(args) > 2 {
			named = place(args[2])
		}
		b := s.plan.Refused(s.at, refusalOf(args[1], s.at, named))
		return "closed " + describe(b) + "; " + s.next(), nil
	case "rose":
		price, err := strconv.ParseFloat(args[1], 64)
		if err != nil {
			return "", err
		}
		s.plan.Reprice(s.at, price)
		return s.next(), nil
	case "rest":
		var lines []string
		for o, ok := s.plan.Next(); ok; o, ok = s.plan.Next() {
			lines = append(lines, tried(o))
			s.plan.Refused(o, &cloud.CapacityError{Place: o.Place, Err: errors.New("full")})
		}
		return strings.Join(append(lines, fmt.Sprintf("%d never tried", s.plan.Closed())), "\n"), nil
	}
	return "", fmt.Errorf("unknown command %q", args[0])
}

func (s *story) next() string {
	o, ok := s.plan.Next()
	if !ok {
		return "nothing left"
	}
	s.at = o
	return tried(o)
}

func tried(o cloud.Offer) string { return fmt.Sprintf("try %v %s", o.Place, machine(o)) }

func describe(b cloud.Block) string {
	s := b.Place().String()
	if b.InstanceType != "" {
		s += " " + b.InstanceType
	}
	switch {
	case b.Spot == nil:
	case *b.Spot:
		s += " spot"
	default:
		s += " on-demand"
	}
	return s
}

func place(s string) cloud.Place {
	p := append(strings.SplitN(s, "/", 3), "", "")
	return cloud.Place{Cloud: p[0], Region: p[1], Zone: p[2]}
}

// refusalOf is an error of that kind, as a provider returns it.
func refusalOf(kind string, o cloud.Offer, named cloud.Place) error {
	boom := errors.New("boom")
	var err error
	switch kind {
	case Capacity:
		err = &cloud.CapacityError{Place: named, Err: boom}
	case Price:
		err = &cloud.PriceError{Place: named, Planned: 1, Now: 2, Err: boom}
	case Quota:
		err = &cloud.QuotaError{Place: named, Err: boom}
	case Credentials:
		err = &cloud.AuthError{Cloud: o.Cloud, Region: named.Region, Err: boom}
	case Permission:
		err = &cloud.PermissionError{Place: named, Err: boom}
	case Invalid:
		err = &cloud.InvalidError{Place: named, Err: boom}
	case Throttled:
		err = &cloud.ThrottledError{Err: boom}
	case Unreachable:
		err = &cloud.UnreachableError{Err: boom}
	case Timeout:
		err = &TimeoutError{Step: stepLaunch, Err: boom}
	case Partial:
		err = &GangError{Want: 4, Running: 3}
	case Preempted:
		err = &GangError{Want: 4, Running: 3, Gone: 1}
	case OK:
		return nil
	default:
		err = boom
	}
	return fmt.Errorf("launching: %w", err) // wrapping keeps the kind
}

func TestOutcomesAreTold(t *testing.T) {
	for _, want := range []string{OK, Capacity, Price, Quota, Credentials, Permission, Invalid, Throttled, Unreachable, Timeout, Partial, Preempted, Internal} {
		if got := Outcome(refusalOf(want, cloud.Offer{}, cloud.Place{})); got != want {
			t.Errorf("%s is told as %s", want, got)
		}
	}
}

// A refusal that sky does not know closes the place that was asked for, and its code is known
// to those who count.
func TestUnknownRefusals(t *testing.T) {
	boom := errors.New("boom")
	o := cloud.Offer{Place: cloud.Place{Cloud: "a", Region: "r", Zone: "z"}, InstanceType: "m"}
	err := fmt.Errorf("launching: %w", &cloud.UnknownError{Code: "New", Err: boom})
	if code, ok := UnknownCode(err); !ok || code != "New" || !errors.Is(err, boom) || err.Error() != "launching: boom" {
		t.Errorf("%q, %t, %v", code, ok, err)
	}
	if got := ruledOut(o, err); Outcome(err) != Internal || !reflect.DeepEqual(got, cloud.BlockPlace(o.Place)) {
		t.Errorf("%s closes %v", Outcome(err), got)
	}
	if code, ok := UnknownCode(&cloud.CapacityError{Err: boom}); ok {
		t.Errorf("a full place has the unknown code %q", code)
	}
}
