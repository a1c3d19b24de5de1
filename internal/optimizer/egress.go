package optimizer

import (
	"net/url"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/facts"
)

// egressCost is what it costs ($) to move data out of a cloud.
func egressCost(cloud string, gb float64) float64 {
	cost, from := 0.0, 0.0
	for _, t := range facts.Of(cloud).Egress {
		if gb <= from {
			break
		}
		cost += (min(gb, t.UpTo) - from) * t.Price
		from = t.UpTo
	}
	return cost
}

// egressSeconds is how long data takes between clouds, at ten gigabits a second.
func egressSeconds(gb float64) float64 { return gb * 8 / 10 }

// storeCloud finds the cloud that keeps the data of a URI; ok is false when
// that cannot be told.
func storeCloud(uri string) (cloud string, ok bool) {
	scheme, _, found := strings.Cut(uri, "://")
	if !found {
		return "", false
	}
	host := ""
	if u, err := url.Parse(uri); err == nil && u.Scheme == "https" {
		host = u.Hostname()
	}
	for _, c := range facts.All() {
		if slices.Contains(c.Schemes, strings.ToLower(scheme)) || c.StoreHosts != "" && strings.HasSuffix(host, c.StoreHosts) {
			return c.Name, true
		}
	}
	return "", false
}
