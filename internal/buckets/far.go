package buckets

import (
	"context"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/task"
)

// Far says which of a task's buckets are not where it is about to run, and what that costs.
func (m *Manager) Far(ctx context.Context, call cluster.Call, t *task.Task, cloud, region string) ([]string, error) {
	uses, err := read(t)
	if err != nil {
		return nil, err
	}
	c := m.configOf(call)
	var out []string
	seen := map[storage.Location]bool{}
	for _, u := range uses {
		var b storage.Bucket
		if u.name == "" {
			b, err = m.find(ctx, c, u.from)
		} else {
			_, b, err = m.wanted(ctx, call, c, t, u)
		}
		if err != nil {
			return nil, err
		}
		g, err := grantOf(ctx, b)
		if err != nil {
			return nil, err
		}
		if why := far(b.Location(), g.Endpoint, cloud, region); why != "" && !seen[b.Location()] {
			seen[b.Location()] = true
			out = append(out, why)
		}
	}
	return out, nil
}

// far says that a bucket is elsewhere than a place, if its store charges for that. It is
// pure. What a server in place of the store's own one charges is not known.
func far(at storage.Location, endpoint, cloud, region string) string {
	home := storeClouds[at.Store]
	about := facts.Of(home)
	price := 0.0
	for _, tier := range about.Egress {
		if tier.Price > 0 {
			price = tier.Price
			break
		}
	}
	if endpoint != "" || price == 0 {
		return ""
	}
	key := at.At("")
	switch {
	case !strings.EqualFold(home, cloud):
		return fmt.Sprintf("Bucket %s is in %s, and the task runs elsewhere: what it reads leaves that cloud, which charges about $%.2g for each GB.", key, home, price)
	case at.Region != "" && region != "" && at.Region != "auto" && !strings.EqualFold(at.Region, region) && !multiRegion(at, region):
		return fmt.Sprintf("Bucket %s is in %s, and the task runs in %s: what it reads crosses regions, which takes longer, and for which %s charges.", key, at.Region, region, home)
	}
	return ""
}

// multiRegion reports whether a bucket of Google's is in many regions, that one among them.
func multiRegion(at storage.Location, region string) bool {
	if at.Store != storage.GCS {
		return false
	}
	wide := strings.ToLower(at.Region)
	areas := map[string]string{"us": "us-", "eu": "europe-", "asia": "asia-"}
	prefix, ok := areas[wide]
	return ok && strings.HasPrefix(strings.ToLower(region), prefix) || !strings.Contains(wide, "-") && !ok // such as NAM4
}
