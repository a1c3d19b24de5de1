package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/balancer/feed"
)

// balancerJournal is the log of a service's balancers, wherever they run: the server
// that looks after the service makes it of what they report.
type balancerJournal struct {
	out   *logstore.Journal
	heard map[string]feed.Heard
	since time.Time // that requests are counted from
	sum   feed.Summary
}

// note writes what is new.
func (j *balancerJournal) note(t *feed.Tally, service string, now time.Time) {
	heard := t.Heard(service, now)
	lines := balancerNews(j.heard, heard)
	j.heard = heard
	switch sum := t.Summary(service, now); {
	case j.since.IsZero():
		j.since, j.sum = now, sum
	case now.Sub(j.since) >= window:
		if line := requestNews(j.sum, sum, now.Sub(j.since)); line != "" {
			lines = append(lines, line)
		}
		j.since, j.sum = now, sum
	}
	j.out.Print(lines...)
}

// unheard says why requests do not reach the service, as far as its balancers know.
func unheard(heard map[string]feed.Heard) []string {
	var why []string
	for _, h := range heard {
		if h.Error == "" {
			return nil
		}
		why = append(why, "no load balancer listens: "+h.Error)
	}
	slices.Sort(why)
	return slices.Compact(why)
}

// balancerNews says what has changed about balancers.
func balancerNews(before, after map[string]feed.Heard) (lines []string) {
	name := func(id string, h feed.Heard) string {
		if h.Address == "" {
			return "Balancer " + id
		}
		return fmt.Sprintf("Balancer %s (%s)", id, h.Address)
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[id]; !ok {
			lines = append(lines, name(id, before[id])+" is not heard any more")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		was, known := before[id]
		is := after[id]
		if is.Error != "" && is.Error != was.Error {
			lines = append(lines, fmt.Sprintf("%s does not listen: %s", name(id, feed.Heard{}), is.Error))
		} else if is.Address != "" && (!known || is.Address != was.Address) {
			lines = append(lines, name(id, is)+" takes requests")
		}
		for _, r := range is.Ejected {
			if !slices.Contains(was.Ejected, r) {
				lines = append(lines, fmt.Sprintf("%s gives replica %d no requests for a while: it failed several", name(id, is), r))
			}
		}
		for _, r := range was.Ejected {
			if !slices.Contains(is.Ejected, r) {
				lines = append(lines, fmt.Sprintf("%s gives replica %d requests again", name(id, is), r))
			}
		}
	}
	return lines
}

// requestNews says what became of requests; "": there were none.
func requestNews(before, after feed.Summary, span time.Duration) string {
	var parts []string
	add := func(n int64, text string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	statuses := map[string]int64{}
	var first balancerapi.Histogram
	for v, c := range after.Versions {
		for s, n := range c.Statuses {
			statuses[s] += n - before.Versions[v].Statuses[s]
		}
		first = first.Add(c.FirstByte.Sub(before.Versions[v].FirstByte))
	}
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		add(statuses[s], s)
	}
	for _, id := range slices.Sorted(maps.Keys(after.Replicas)) {
		add(after.Replicas[id].Errors-before.Replicas[id].Errors, fmt.Sprintf("times no answer of replica %d", id))
	}
	for _, reason := range slices.Sorted(maps.Keys(after.Refused)) {
		add(after.Refused[reason]-before.Refused[reason], "refused ("+reason+")")
	}
	add(int64(after.Waiting), "waiting")
	if len(parts) == 0 {
		return ""
	}
	text := fmt.Sprintf("In %v: %s", span.Round(time.Second), strings.Join(parts, ", "))
	if first.Count() > 0 {
		text += fmt.Sprintf("; first byte p50 %.3f s, p95 %.3f s", first.Quantile(0.5), first.Quantile(0.95))
	}
	return text
}
