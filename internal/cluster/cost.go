package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/state"
)

// skyPilotEntry begins the entrypoint of requests of SkyPilot's clients. They look up the
// price of each row themselves, and fail as a whole on a row without a cloud and an
// instance type that they know.
const skyPilotEntry = "sky."

// CostReport sums up what clusters ran and cost, at the prices they were
// rented at. Days bounds how far back; 0 means all, and none 30.
func (m *Manager) CostReport(ctx context.Context, call Call, body api.CostReportBody) ([]api.CostRecord, error) {
	at := now()
	days := 30
	if body.Days != nil {
		days = *body.Days
	}
	since := time.Time{}
	if days > 0 {
		since = at.Add(-time.Duration(days) * 24 * time.Hour)
	}
	history, err := m.Store.Clusters().History(ctx, since)
	if err != nil {
		return nil, err
	}
	records := make([]api.CostRecord, 0, len(history))
	for _, h := range history {
		if !call.Scope.Sees(h.Workspace) || !match(body.ClusterNames, h.Name) || len(body.ClusterHashes) > 0 && !match(body.ClusterHashes, h.Hash) {
			continue
		}
		r := costRecord(h, at)
		if r.Resources == nil && strings.HasPrefix(body.Entrypoint, skyPilotEntry) {
			continue
		}
		records = append(records, r)
	}
	return records, nil
}

func costRecord(h *state.ClusterHistory, at time.Time) api.CostRecord {
	var total time.Duration
	intervals := [][2]*int64{}
	for _, i := range h.Intervals {
		end := i.End
		start := i.Start.Unix()
		pair := [2]*int64{&start, nil}
		if end.IsZero() {
			end = at
		} else {
			e := end.Unix()
			pair[1] = &e
		}
		total += max(end.Sub(i.Start), 0)
		intervals = append(intervals, pair)
	}
	r := api.CostRecord{
		Name: h.Name, LaunchedAt: h.LaunchedAt.Unix(), Duration: int64(total.Seconds()), NumNodes: h.NumNodes,
		ClusterHash: h.Hash, UsageIntervals: intervals,
		TotalCost:   float64(h.NumNodes) * h.Offer.HourlyPrice * total.Hours(),
		HourlyPrice: float64(h.NumNodes) * h.Offer.HourlyPrice,
		UserHash:    h.UserHash, UserName: h.UserName, Workspace: orElse(h.Workspace, "default"), LastUse: h.LastUse,
		Cloud: h.Offer.Cloud, Region: h.Offer.Region,
	}
	if !facts.Of(h.Offer.Cloud).Ours && h.Offer.InstanceType != "" {
		r.Resources = launchedResources(h.Offer)
	}
	c := &state.Cluster{Offer: h.Offer, NumNodes: h.NumNodes}
	r.ResourcesStr, r.ResourcesStrFull = resourcesString(c, false), resourcesString(c, true)
	if h.LastStatus != "TERMINATED" && h.LastStatus != "" {
		s := api.ClusterStatus(h.LastStatus)
		r.Status = &s
	}
	return r
}
