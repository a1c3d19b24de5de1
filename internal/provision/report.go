package provision

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// shownPlaces is how many attempts a report lists one by one.
const shownPlaces = 10

// Error is the report for a person: what was tried, why each failed, what to do.
func (e *UnplacedError) Error() string {
	var b strings.Builder
	if len(e.Attempts) == 1 {
		fmt.Fprintf(&b, "could not get %s for cluster %s:", machines(e.Nodes), e.Cluster)
	} else {
		fmt.Fprintf(&b, "could not get %s for cluster %s in any of %d places:", machines(e.Nodes), e.Cluster, len(e.Attempts))
	}
	if len(e.Attempts) <= shownPlaces {
		for _, a := range e.Attempts {
			fmt.Fprintf(&b, "\n  ✗ %v — %s — %s (%s): %v", a.Offer.Place, machine(a.Offer), ClassOf(a.Outcome), took(a.Took), words(a.Err))
		}
	} else {
		for _, g := range e.groups() {
			fmt.Fprintf(&b, "\n  ✗ %s — %s — %s: %s", strings.Join(g.where, ", "), strings.Join(g.machines, ", "), g.class, g.words)
		}
	}
	if e.Closed > 0 {
		fmt.Fprintf(&b, "\n  %s not tried, because what was refused rules them out", count(e.Closed, "more offer was", "more offers were"))
	}
	for _, class := range e.Classes() {
		if a := e.advice(class); a != "" {
			fmt.Fprintf(&b, "\n%s", a)
		}
	}
	return b.String()
}

// group is attempts that failed alike in one region.
type group struct {
	class    Class
	region   cloud.Place
	words    string
	where    []string
	machines []string
}

// groups merges attempts of one class and machine in the same cloud that the
// cloud answered in the same words, and names what is merged briefly.
func (e *UnplacedError) groups() []*group {
	type key struct {
		class   Class
		cloud   string
		machine string
	}
	var order []*group
	index := map[key]*group{}
	zones := map[*group]map[string][]string{} // region → zones
	for _, a := range e.Attempts {
		k := key{ClassOf(a.Outcome), a.Offer.Cloud, machine(a.Offer)}
		g := index[k]
		if g == nil {
			g = &group{class: k.class, region: cloud.Place{Cloud: k.cloud}, machines: []string{k.machine}, words: words(a.Err).Error()}
			index[k] = g
			order = append(order, g)
			zones[g] = map[string][]string{}
		}
		zones[g][a.Offer.Region] = append(zones[g][a.Offer.Region], a.Offer.Zone)
	}
	for _, g := range order {
		g.where = []string{whereabouts(g.region.Cloud, zones[g])}
	}
	return order
}

// whereabouts is "aws: us-east-1 (a, b, c), us-west-2", briefer for many.
func whereabouts(cloud string, regions map[string][]string) string {
	names := make([]string, 0, len(regions))
	places := 0
	for r, z := range regions {
		names = append(names, r)
		places += len(z)
	}
	slices.Sort(names)
	const shown = 4
	var parts []string
	for _, r := range names[:min(shown, len(names))] {
		zones := slices.DeleteFunc(slices.Clone(regions[r]), func(z string) bool { return z == "" })
		if len(zones) > 0 {
			for i, z := range zones {
				zones[i] = strings.TrimPrefix(strings.TrimPrefix(z, r), "-")
			}
			r += " (" + strings.Join(zones, ", ") + ")"
		}
		parts = append(parts, r)
	}
	s := cloud + ": " + strings.Join(parts, ", ")
	if more := len(names) - shown; more > 0 {
		s += fmt.Sprintf(" and %s", count(more, "region more", "regions more"))
	}
	return s
}

// Classes are the classes of the attempts, the most frequent first.
func (e *UnplacedError) Classes() []Class {
	n := map[Class]int{}
	var classes []Class
	for _, a := range e.Attempts {
		c := ClassOf(a.Outcome)
		if n[c]++; n[c] == 1 {
			classes = append(classes, c)
		}
	}
	slices.SortStableFunc(classes, func(a, b Class) int { return cmp.Compare(n[b], n[a]) })
	return classes
}

// advice is what to do about a class of failures.
func (e *UnplacedError) advice(c Class) string {
	clouds := e.clouds(c)
	switch c {
	case NoCapacity:
		return "No capacity: wait and try again, or allow more places, other machines or on-demand ones in the task's resources."
	case TooDear:
		return "Price: raise max_hourly_cost in the task's resources, allow more places or other machines, or wait until it falls."
	case OverQuota:
		return fmt.Sprintf("Quota: ask %s for more, or give back what you no longer need.", strings.Join(clouds, " and "))
	case BadCredentials:
		if fix := e.fix(); fix != "" {
			return "Credentials: " + fix
		}
		return "Credentials: see what is wrong with: sky check " + strings.Join(clouds, " ")
	case YourRequest:
		return "Your request: change what the cloud names above; it cannot work there as it is."
	case WeCouldNotTell:
		return fmt.Sprintf("We could not tell: %s gave no proper answer; see whether it works with: sky check %s", strings.Join(clouds, " and "), strings.Join(clouds, " "))
	}
	return ""
}

// fix is the remedy that a cloud named.
func (e *UnplacedError) fix() string {
	for _, a := range e.Attempts {
		if auth, ok := errors.AsType[*cloud.AuthError](a.Err); ok && auth.Fix != "" {
			return auth.Fix
		}
	}
	return ""
}

func (e *UnplacedError) clouds(c Class) []string {
	var names []string
	for _, a := range e.Attempts {
		if ClassOf(a.Outcome) == c && !slices.Contains(names, a.Offer.Cloud) {
			names = append(names, a.Offer.Cloud)
		}
	}
	return names
}

// Details is the report for programs: the details of an API error.
func (e *UnplacedError) Details() map[string]any {
	attempts := make([]map[string]any, len(e.Attempts))
	for i, a := range e.Attempts {
		class := ClassOf(a.Outcome)
		attempts[i] = map[string]any{
			"cloud": a.Offer.Cloud, "region": a.Offer.Region, "zone": a.Offer.Zone,
			"instance_type": a.Offer.InstanceType, "use_spot": a.Offer.Spot, "hourly_price": a.Offer.HourlyPrice,
			"outcome": a.Outcome, "class": class.Kind(), "message": words(a.Err).Error(),
			"retryable": class.Retryable(), "seconds": a.Took.Seconds(), "ruled_out": ruledOut(a.Offer, a.Err),
		}
	}
	advice := map[string]string{}
	for _, c := range e.Classes() {
		if a := e.advice(c); a != "" {
			advice[c.Kind()] = a
		}
	}
	return map[string]any{"kind": e.Kind(), "attempts": attempts, "not_tried": e.Closed, "advice": advice, "retryable": e.Retryable()}
}

// Kind is the kind of the whole failure: lack of capacity if there is any, since
// that is what waiting mends, else what was most frequent.
func (e *UnplacedError) Kind() string {
	classes := e.Classes()
	switch {
	case len(classes) == 0:
		return NoCapacity.Kind()
	case slices.Contains(classes, NoCapacity):
		return NoCapacity.Kind()
	}
	return classes[0].Kind()
}

// words is the cloud's own, without ours around them when the line says the
// same already.
func words(err error) error {
	switch e := err.(type) {
	case *cloud.CapacityError:
		err = e.Err
	case *cloud.PriceError:
		err = e.Err
	case *cloud.QuotaError:
		err = e.Err
	case *cloud.AuthError:
		err = e.Err
	case *cloud.PermissionError:
		err = e.Err
	case *cloud.InvalidError:
		err = e.Err
	}
	if err == nil {
		return errors.New("no reason was given")
	}
	return err
}

func machine(o cloud.Offer) string {
	if o.Spot {
		return o.InstanceType + "[Spot]"
	}
	return o.InstanceType
}

func machines(n int) string {
	if n == 1 {
		return "a machine"
	}
	return fmt.Sprintf("%d machines", n)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// took is a duration as people read it.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return "at once"
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return d.Round(time.Minute).String()
}
