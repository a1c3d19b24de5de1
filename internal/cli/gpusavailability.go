package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// gpusAvailability shows what past attempts tell of room, and what clouds that
// can tell say now.
func (a *app) gpusAvailability(ctx context.Context, q gpuQuery) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	req, err := c.Availability(ctx, api.AvailabilityBody{
		Cloud: q.place.Cloud, Region: q.place.Region, Accelerator: q.name, Quantity: q.quantity, Ask: true,
	})
	list, err := quiet(ctx, req, err)
	if err != nil {
		return err
	}
	if done, err := a.emit(nonNil(list)); done {
		return err
	}
	a.t.Print(availabilityText(a.t, list, a.now()))
	return nil
}

func availabilityText(t *term.Term, list []api.Availability, now time.Time) string {
	if len(list) == 0 {
		return "No machine of this kind was asked for in the last week, so nothing is known of where there is room.\n"
	}
	return t.Table(availabilityTable(list, now)) +
		"\nCHANCE is learned from your own attempts; what they saw counts half after provision.availability_half_life_minutes.\n"
}

func availabilityTable(list []api.Availability, now time.Time) *table.Table {
	tab := table.New("INFRA", "INSTANCE", "GPUS", "CHANCE", "HAD", "TIME", "LAST TRY", "NOW", "NOTE").
		Whole("INFRA", "INSTANCE").Prose("LAST TRY", "NOW", "NOTE").Optional("TIME", "HAD", "NOW", "LAST TRY")
	for _, v := range list {
		infra := v.Cloud
		for _, part := range []string{v.Region, v.Zone} {
			if part != "" {
				infra += "/" + part
			}
		}
		instance := v.InstanceType
		if v.UseSpot {
			instance += "[Spot]"
		}
		took := "-"
		if v.Median > 0 {
			took = ageText(time.Duration(v.Median * float64(time.Second)))
		}
		last := ageText(now.Sub(time.Unix(v.LastTry, 0))) + " ago: " + v.LastOutcome
		at := cmp.Or(v.Stock, v.Now, "-")
		if v.NowAt > 0 {
			at += ", " + ageText(now.Sub(time.Unix(v.NowAt, 0))) + " ago"
		}
		note := ""
		if v.PassedOver {
			note = "tried last until the credentials change"
			if v.PassedOverUntil > 0 {
				note = "tried last for " + ageText(time.Unix(v.PassedOverUntil, 0).Sub(now))
			}
		}
		tab.Add(infra, instance, acceleratorsText(v.Accelerators), fmt.Sprintf("%.0f%%", 100*v.Chance), fmt.Sprintf("%d of %d", v.Had, v.Tries), took, last, at, note)
	}
	return tab
}

func acceleratorsText(m map[string]float64) string {
	var parts []string
	for name, n := range m {
		parts = append(parts, name+":"+strconv.FormatFloat(n, 'f', -1, 64))
	}
	if len(parts) == 0 {
		return "-"
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
