package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// quota is a limit of a region, or of the project over all regions.
type quota struct {
	Metric string  `json:"metric"`
	Limit  float64 `json:"limit"`
	Usage  float64 `json:"usage"`
}

// quotas are a region's, or with region "" the project's, by metric.
func (a *account) quotas(ctx context.Context, region string) (map[string]quota, error) {
	path := a.on("")
	if region != "" {
		path = a.on("/regions/%s", region)
	}
	found, err := rest.Do[struct {
		Quotas []quota `json:"quotas"`
	}](ctx, a.compute, "GET", path, nil)
	if missing(err) && region != "" {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: region}, Err: fmt.Errorf("the project %s has no region %s: %w", a.project, region, err)}
	}
	out := map[string]quota{}
	for _, q := range found.Quotas {
		out[q.Metric] = q
	}
	return out, err
}

// need is what machines take of a metric. Where several are named, the first counts that
// the region has a limit for which is not 0: who was granted nothing for spot machines
// pays for them with the ordinary ones.
type need struct {
	metrics []string
	each    float64
}

// needs are what one machine of a launch takes of the region's quotas.
func (d driver) needs(ctx context.Context, spec cloud.LaunchSpec, s Settings) []need {
	o := spec.Offer
	spot := func(metric string) []string {
		if o.Spot {
			return []string{"PREEMPTIBLE_" + metric, metric}
		}
		return []string{metric}
	}
	family, _, _ := strings.Cut(o.InstanceType, "-")
	var out []need
	cpus := []string{strings.ToUpper(family) + "_CPUS"}
	if slices.Contains([]string{"n1", "e2", "f1", "g1"}, family) {
		cpus = []string{"CPUS"}
	}
	if o.Spot {
		cpus = append([]string{"PREEMPTIBLE_CPUS"}, cpus...)
	}
	out = append(out, need{cpus, o.CPUs}, need{[]string{"INSTANCES"}, 1})
	for _, name := range slices.Sorted(maps.Keys(o.Accelerators)) {
		metric := "NVIDIA_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_GPUS"
		metrics := spot(metric)
		if known := d.o.Quota(ctx, name, o.Spot); known != "" {
			metrics[0] = known
		}
		out = append(out, need{metrics, o.Accelerators[name]})
	}
	if s.external() {
		out = append(out, need{[]string{"IN_USE_ADDRESSES"}, 1})
	}
	size := float64(cmp.Or(spec.DiskGB, defaultDiskGB))
	switch kind, _ := diskType(o, spec.DiskTier); kind {
	case "pd-standard":
		out = append(out, need{[]string{"DISKS_TOTAL_GB"}, size})
	case "hyperdisk-balanced":
		out = append(out, need{[]string{"HDB_TOTAL_GB"}, size})
	default:
		out = append(out, need{[]string{"SSD_TOTAL_GB"}, size})
	}
	return append(out, diskNeeds(spec)...)
}

// lacks is the first quota that does not hold so many machines; "": all that are known do.
func lacks(quotas map[string]quota, needs []need, machines int) string {
	for _, n := range needs {
		for i, metric := range n.metrics {
			q, ok := quotas[metric]
			if !ok || q.Limit == 0 && i < len(n.metrics)-1 {
				continue
			}
			if want := n.each * float64(machines); q.Limit >= 0 && want > q.Limit-q.Usage {
				return fmt.Sprintf("the quota %s is %g, of which %g is in use, and this takes %g more", metric, q.Limit, q.Usage, want)
			}
			break
		}
	}
	return ""
}

// enough refuses machines that the quotas are known not to allow. A service that does not
// tell proves nothing, and capacity that is reserved needs no quota any more.
func (d driver) enough(ctx context.Context, a *account, spec cloud.LaunchSpec, machines int) error {
	o := spec.Offer
	refuse := func(in, why string) error {
		if r, err := a.reservations(ctx, o); err == nil && !o.Spot && slices.ContainsFunc(r, func(r reservation) bool { return r.free() > 0 }) {
			return nil
		}
		return a.tooFew(in, why)
	}
	here, err := a.quotas(ctx, o.Region)
	if err != nil {
		return unknown(ctx, err)
	}
	if why := lacks(here, d.needs(ctx, spec, d.settings(spec)), machines); why != "" {
		return refuse(o.Region, why)
	}
	if o.Spot { // of which the limits over all regions may be others
		return nil
	}
	project, err := a.quotas(ctx, "")
	if err != nil {
		return unknown(ctx, err)
	}
	everywhere := []need{{[]string{"CPUS_ALL_REGIONS"}, o.CPUs}}
	for _, n := range o.Accelerators {
		everywhere = append(everywhere, need{[]string{"GPUS_ALL_REGIONS"}, n})
	}
	if why := lacks(project, everywhere, machines); why != "" {
		return refuse("", why)
	}
	return nil
}

// tooFew refuses what a quota does not hold.
func (a *account) tooFew(region, why string) error {
	return &cloud.QuotaError{Place: cloud.Place{Cloud: Name, Region: region},
		Err: fmt.Errorf("%s (project %s); ask for more at https://console.cloud.google.com/iam-admin/quotas?project=%s", why, a.project, a.project)}
}

// unknown is the error of quotas that could not be read, if it says more than that.
func unknown(ctx context.Context, err error) error {
	var (
		auth    *cloud.AuthError
		invalid *cloud.InvalidError
	)
	if errors.As(err, &auth) || errors.As(err, &invalid) || ctx.Err() != nil {
		return err
	}
	return nil
}

// Quotas are a region's, or with region "" the project's over all regions.
func (p *Provider) Quotas(ctx context.Context, region string) ([]cloud.Quota, error) {
	at := cloud.Place{Cloud: Name, Region: region}
	a, err := p.api(ctx)
	if err != nil {
		return nil, err
	}
	found, err := a.quotas(ctx, region)
	if err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	var out []cloud.Quota
	for _, metric := range slices.Sorted(maps.Keys(found)) {
		q := found[metric]
		out = append(out, cloud.Quota{Place: at, Name: metric, Limit: int(q.Limit), Used: int(q.Usage)})
	}
	return out, nil
}
