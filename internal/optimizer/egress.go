package optimizer

import (
	"math"
	"net/url"
	"strings"
)

// tier is a price for data that leaves a cloud: $ per GB for the part of the
// amount up to upTo GB.
type tier struct{ upTo, price float64 }

// egressTiers are what clouds charge for data that leaves them. Clouds that are
// not listed charge nothing.
var egressTiers = map[string][]tier{
	"aws":   {{1, 0}, {10240, 0.09}, {51200, 0.085}, {153600, 0.07}, {math.Inf(1), 0.05}},
	"azure": {{1, 0}, {10240, 0.0875}, {51200, 0.083}, {153600, 0.07}, {math.Inf(1), 0.05}},
	"gcp":   {{1024, 0.12}, {10240, 0.11}, {math.Inf(1), 0.08}},
	"ibm":   {{50, 0.09}, {150, 0.07}, {math.Inf(1), 0.05}},
	"oci":   {{10240, 0}, {math.Inf(1), 0.0085}},
}

// egressCost is what it costs ($) to move data out of a cloud.
func egressCost(cloud string, gb float64) float64 {
	cost, from := 0.0, 0.0
	for _, t := range egressTiers[cloud] {
		if gb <= from {
			break
		}
		cost += (min(gb, t.upTo) - from) * t.price
		from = t.upTo
	}
	return cost
}

// egressSeconds is how long data takes between clouds, at ten gigabits a second.
func egressSeconds(gb float64) float64 { return gb * 8 / 10 }

// storeClouds tells which cloud keeps the data of a URI scheme.
var storeClouds = map[string]string{
	"s3": "aws", "gs": "gcp", "cos": "ibm", "oci": "oci", "nebius": "nebius",
	"r2": "cloudflare", "cw": "coreweave", "vastdata": "vastdata", "hf": "huggingface",
}

// storeCloud finds the cloud that keeps the data of a URI; ok is false when
// that cannot be told.
func storeCloud(uri string) (cloud string, ok bool) {
	scheme, _, found := strings.Cut(uri, "://")
	if !found {
		return "", false
	}
	if c, ok := storeClouds[strings.ToLower(scheme)]; ok {
		return c, true
	}
	if u, err := url.Parse(uri); err == nil && u.Scheme == "https" && strings.HasSuffix(u.Hostname(), ".blob.core.windows.net") {
		return "azure", true
	}
	return "", false
}
