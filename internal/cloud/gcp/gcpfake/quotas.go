package gcpfake

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// gpusIn are the GPUs of a model's type.
func (f *Fake) gpusIn(machine string) (n int) {
	for gpu, count := range f.Cloud.Accelerators(machine) {
		if accelerators[gpu] != "" {
			n += int(count)
		}
	}
	return n
}

func (f *Fake) gpusInUse() (n int) {
	for _, m := range f.Cloud.Machines() {
		if m.State != fluffyapi.Stopped && m.State != fluffyapi.Terminated {
			n += f.gpusIn(m.Type)
		}
	}
	return n
}

// gpuRoom refuses more GPUs than the project may have in all regions.
func (f *Fake) gpuRoom(machine string, machines int) error {
	n := f.gpusIn(machine) * machines
	if f.gpus < 0 || n == 0 || f.gpusInUse()+n <= f.gpus {
		return nil
	}
	return overQuota("GPUS_ALL_REGIONS", float64(f.gpus), "", "global", nil)
}

// overQuota is an error of an operation:
// https://cloud.google.com/compute/resource-usage#error_messages.
func overQuota(metric string, limit float64, region, scope string, dimensions dict) *opError {
	where := "globally"
	if region != "" {
		where = "in region " + region
		dimensions = dict{"region": region}
	}
	return &opError{code: "QUOTA_EXCEEDED", status: 403, statusText: "FORBIDDEN", message: fmt.Sprintf("Quota '%s' exceeded.  Limit: %.1f %s.", metric, limit, where), details: []any{dict{"quotaInfo": dict{
		"metricName": "compute.googleapis.com/" + strings.ToLower(metric), "limitName": strings.ReplaceAll(metric, "_", "-") + "-per-project-" + scope, "dimensions": dimensions, "limit": limit,
	}}}}
}

// quotaError is the one of a region that a machine type would go over.
func (f *Fake) quotaError(zone, machine string, spot bool) *opError {
	name, region := "cpus", regionOf(zone)
	for gpu := range f.Cloud.Accelerators(machine) {
		name = gpu
	}
	if spot {
		name = "spot-" + name
	}
	limit := 0.0
	all, _ := f.Owner.Quotas(background, region)
	for _, q := range all {
		if q.Name == name {
			limit = float64(q.Limit)
		}
	}
	return overQuota(metric(name), limit, region, "region", nil)
}
