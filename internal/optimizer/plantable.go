package optimizer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/task"
)

// Table writes the plan for people: for every task the best candidate of each
// cloud, accelerator and kind of price, and which one was taken; before that,
// with several tasks, the plan as a whole and its transfers. Tables take at most that
// many columns; 0: what they need, which is how clients of SkyPilot know them.
func (p *Plan) Table(w io.Writer, colour bool, columns int) {
	if len(p.Tasks) > 1 {
		p.bestPlan(w, columns)
		p.transfers(w, columns)
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Candidates == nil { // it has its place
			continue
		}
		of := ""
		if len(p.Tasks) > 1 {
			of = fmt.Sprintf(" for task '%s'", cmp.Or(t.Task.Name, strconv.Itoa(i)))
		}
		fmt.Fprintf(w, "Considered resources%s (%s):\n", of, countNodes(t.Chosen.NumNodes))
		t.considered(w, p.Minimize, colour, columns)
		if t.timed() || t.moves() {
			fmt.Fprintln(w, t.decided())
		}
		t.reservedNote(w)
		t.excluded(w)
	}
}

// timed reports whether the time of candidates is worth a column: the task has
// estimates, or the plan minimizes it.
func (t *TaskPlan) timed() bool {
	return t.target == Time || t.Task.EstimatedRuntime > 0 ||
		slices.ContainsFunc(t.Task.Resources, func(r task.Resources) bool { return r.EstimatedRuntime > 0 })
}

// moves reports whether data would move if the task ran on some of its candidates.
func (t *TaskPlan) moves() bool {
	return slices.ContainsFunc(t.Candidates, func(c Candidate) bool { return c.Moved > 0 || c.MovedFor > 0 })
}

// decided says which of cost and time made the plan take what it took.
func (t *TaskPlan) decided() string {
	first, second := compareCost, compareTime
	names := [2]string{"cost", "time"}
	if t.target == Time {
		first, second = second, first
		names = [2]string{"time", "cost"}
	}
	same, less := 0, false // others as good by what comes first; whether one is better
	bySecond := false
	for i := range t.Candidates {
		c := &t.Candidates[i]
		if c.rank == t.Chosen.rank || c.Unpriced != t.Chosen.Unpriced || c.LastResort != t.Chosen.LastResort {
			continue
		}
		switch d := first(c, &t.Chosen); {
		case d < 0:
			less = true
		case d == 0:
			same++
			bySecond = bySecond || second(c, &t.Chosen) > 0
		}
	}
	switch {
	case less && t.ordered:
		return "Decided by the order of the candidates in the task."
	case less:
		return "Decided by the whole plan: " + names[0] + " with the data that moves."
	case bySecond:
		return "Decided by " + names[1] + ": several have the least " + names[0] + "."
	case same > 0 && same == len(t.Candidates)-1:
		return "Decided by the order of clouds and places: " + names[0] + " and " + names[1] + " are the same."
	}
	return "Decided by " + names[0] + "."
}

// excluded lists the blocked resources of the task.
func (t *TaskPlan) excluded(w io.Writer) {
	for i, p := range t.Task.BlockedResources {
		n := 0
		if i < len(t.Excluded) {
			n = t.Excluded[i]
		}
		offers := "nothing that would fit"
		if n > 0 {
			offers = fmt.Sprintf("%d that would fit", n)
		}
		fmt.Fprintf(w, "Excluded by blocked_resources: %s (%s)\n", p, offers)
	}
}

func countNodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func metricTitle(t Target) string {
	if t == Time {
		return "TIME (hr)"
	}
	return "COST ($)"
}

func metric(t Target, cost, seconds float64) string {
	if t == Time {
		return fmt.Sprintf("%.2f", seconds/3600)
	}
	return fmt.Sprintf("%.2f", cost)
}

// metric is the last column of a candidate; a price that nobody knows is none.
func (c *Candidate) metric(t Target) string {
	if t == Cost && c.Unpriced {
		return "-"
	}
	return metric(t, c.Cost, c.Time)
}

// cells are the columns INFRA to GPUS of a candidate.
func (t *TaskPlan) cells(c *Candidate) []string {
	o := &c.Offer
	instance := cmp.Or(o.InstanceType, "-")
	if o.Spot {
		instance += "[Spot]"
	}
	return []string{t.infra(c), instance, number(o.CPUs), number(o.MemoryGiB), acceleratorText(o.Accelerators)}
}

// infra is where a candidate is.
func (t *TaskPlan) infra(c *Candidate) string {
	infra := t.sources[c.source].DisplayName()
	if where := cmp.Or(c.Offer.Zone, facts.InPlace(c.Offer.Cloud, c.Offer.Region)); where != "" {
		infra += " (" + middleCut(where, 25) + ")"
	}
	return infra
}

func (t *TaskPlan) considered(w io.Writer, target Target, colour bool, columns int) {
	header := []string{"INFRA", "INSTANCE", "vCPUs", "Mem(GB)", "GPUS", metricTitle(target), "CHOSEN"}
	if t.timed() {
		header = slices.Insert(header[:5:5], 5, metricTitle(Cost), metricTitle(Time), "CHOSEN")
	}
	tab := planTable(header...)
	for _, c := range t.Best() {
		mark := ""
		if c.rank == t.Chosen.rank {
			mark = "   ✔"
			if colour {
				mark = "\x1b[32m" + mark + "\x1b[0m"
			}
		}
		cells := t.cells(c)
		if t.timed() {
			cells = append(cells, c.metric(Cost), c.metric(Time), mark)
		} else {
			cells = append(cells, c.metric(target), mark)
		}
		tab.Add(cells...)
	}
	printFitted(w, tab, columns)
}

// Best lists the best candidate of each cloud, requested accelerator and kind of
// price, cheapest first; accelerators that the task put in order stay in that
// order. The chosen candidate stands for its group.
func (t *TaskPlan) Best() []*Candidate {
	type group struct {
		source         int32
		region, wanted string
		spot           bool
	}
	at := map[group]int{}
	type asked struct {
		wanted string
		spot   bool
	}
	first := map[asked]int32{} // entry in which an accelerator first comes
	var out []*Candidate
	for i := range t.Candidates {
		c := &t.Candidates[i]
		if entry, ok := first[asked{c.wanted, c.Offer.Spot}]; !ok || c.entry < entry {
			first[asked{c.wanted, c.Offer.Spot}] = c.entry
		}
		g := group{source: c.source, wanted: c.wanted, spot: c.Offer.Spot}
		if facts.Of(c.Offer.Cloud).Hardware == facts.Own {
			g.region = c.Offer.Region
		}
		j, seen := at[g]
		switch {
		case !seen:
			at[g] = len(out)
			out = append(out, c)
		case c.rank == t.Chosen.rank, out[j].rank != t.Chosen.rank && t.shown(c) < t.shown(out[j]):
			out[j] = c
		}
	}
	slices.SortStableFunc(out, func(a, b *Candidate) int {
		if t.ordered {
			if c := cmp.Compare(first[asked{a.wanted, a.Offer.Spot}], first[asked{b.wanted, b.Offer.Spot}]); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(t.shown(a), t.shown(b)), t.tieOrder(a, b))
	})
	return out
}

// tieOrder settles what looks the same: the task's order, else the order of the
// sources.
func (t *TaskPlan) tieOrder(a, b *Candidate) int {
	if t.ordered && a.entry != b.entry {
		return cmp.Compare(a.entry, b.entry)
	}
	return cmp.Compare(a.source, b.source)
}

// shown is what the table prints as cost or time, in hundredths: what looks the
// same is listed in the order of the sources.
// Prices that nobody knows come after those that are known, and the last resort after
// all others.
func (t *TaskPlan) shown(c *Candidate) int64 {
	switch {
	case c.LastResort:
		return math.MaxInt64
	case t.target == Time:
		return int64(math.Round(c.Time / 36))
	case c.Unpriced:
		return math.MaxInt64 - 1
	}
	return int64(math.Round(c.Cost * 100))
}

func (p *Plan) bestPlan(w io.Writer, columns int) {
	tab := planTable("TASK", "#NODES", "INFRA", "INSTANCE", "vCPUs", "Mem(GB)", "GPUS", metricTitle(p.Minimize))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Candidates == nil {
			continue
		}
		c := &t.Chosen
		row := append([]string{cmp.Or(t.Task.Name, strconv.Itoa(i)), strconv.Itoa(c.NumNodes)}, t.cells(c)...)
		tab.Add(append(row, c.metric(p.Minimize))...)
	}
	fmt.Fprintln(w, "Best plan: ")
	printFitted(w, tab, columns)
}

func (p *Plan) transfers(w io.Writer, columns int) {
	if len(p.Transfers) == 0 {
		return
	}
	tab := planTable("SOURCE", "TARGET", "SIZE (GB)", metricTitle(p.Minimize))
	for _, t := range p.Transfers {
		tab.Add(t.From, t.To, number(t.GB), metric(p.Minimize, t.Cost, t.Time))
	}
	fmt.Fprintln(w, "Data transfer between clouds:")
	printFitted(w, tab, columns)
}

// planTable is a table of plans: places and instance types are what people copy from it.
func planTable(header ...string) *table.Table {
	return table.New(header...).Ruled().Whole("TASK", "INSTANCE").Prose("INFRA").Optional("Mem(GB)", "vCPUs")
}

// printFitted writes a table of at most that many columns.
func printFitted(w io.Writer, tab *table.Table, columns int) {
	fitted := tab.Fit(columns)
	io.WriteString(w, fitted.String())
	if note := table.LeftOutNote(fitted.LeftOut, columns); note != "" {
		fmt.Fprintln(w, note)
	}
}

// number writes 8 for 8.0 and 7.5 for 7.5; "-" for what is unknown.
func number(x float64) string {
	if x == 0 {
		return "-"
	}
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

func acceleratorText(acc map[string]float64) string {
	if len(acc) == 0 {
		return "-"
	}
	if len(acc) == 1 {
		for name, n := range acc {
			return catalog.FormatCount(name, n)
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(acc)) {
		parts = append(parts, catalog.FormatCount(name, acc[name]))
	}
	return strings.Join(parts, ", ")
}

// middleCut shortens a long text in its middle.
func middleCut(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	keep := limit - 3
	return string(r[:(keep+1)/2]) + "..." + string(r[len(r)-keep/2:])
}
