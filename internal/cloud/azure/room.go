package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// sku is a size of machines in a region, as the subscription may use it.
type sku struct {
	Name         string `json:"name"`
	Type         string `json:"resourceType"`
	Family       string `json:"family"` // under which quotas count its cores
	Capabilities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"capabilities"`
	Restrictions []struct {
		Type   string   `json:"type"`
		Reason string   `json:"reasonCode"`
		Values []string `json:"values"`
	} `json:"restrictions"`
}

func (s sku) capability(name string) string {
	for _, c := range s.Capabilities {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (s sku) cores() int {
	n, _ := strconv.Atoi(s.capability("vCPUs"))
	return n
}

func (s sku) arm() bool { return strings.EqualFold(s.capability("CpuArchitectureType"), "Arm64") }

// closed is why the subscription may not use the size in a region; "": it may.
func (s sku) closed(region string) string {
	for _, r := range s.Restrictions {
		if r.Type == "Location" && slices.ContainsFunc(r.Values, func(v string) bool { return strings.EqualFold(v, region) }) {
			return r.Reason
		}
	}
	return ""
}

// regionSKUs are the sizes of a region.
type regionSKUs struct {
	by map[string]sku // by their names in lower case
	at time.Time
}

// skusFor is how long the list of a region is believed: it is long, and changes rarely.
const skusFor = time.Hour

func (d driver) size(ctx context.Context, a *account, o cloud.Offer) (sku, error) {
	key := a.subscription + "/" + o.Region
	d.mu.Lock()
	have, ok := d.sizes[key]
	d.mu.Unlock()
	if !ok || time.Since(have.at) > skusFor {
		all, err := list[sku](ctx, a, "/subscriptions/"+a.subscription+"/providers/Microsoft.Compute/skus", apiSKUs, "$filter", "location eq '"+strings.ReplaceAll(o.Region, "'", "''")+"'")
		if err != nil {
			return sku{}, err
		}
		have = regionSKUs{map[string]sku{}, time.Now()}
		for _, s := range all {
			if s.Type == "virtualMachines" {
				have.by[strings.ToLower(s.Name)] = s
			}
		}
		d.mu.Lock()
		d.sizes[key] = have
		d.mu.Unlock()
	}
	s, ok := have.by[strings.ToLower(o.InstanceType)]
	if !ok {
		return s, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Azure has no size %s in %s", o.InstanceType, o.Region)}
	}
	return s, nil
}

// usage is how much of a quota is in use.
type usage struct {
	Name struct {
		Value string `json:"value"`
		Local string `json:"localizedValue"`
	} `json:"name"`
	Used  int `json:"currentValue"`
	Limit int `json:"limit"`
}

func (d driver) usages(ctx context.Context, a *account, region string) ([]usage, error) {
	return list[usage](ctx, a, "/subscriptions/"+a.subscription+"/providers/Microsoft.Compute/locations/"+region+"/usages", apiCompute)
}

// room is why so many more machines of an offer cannot be had; nil if they can, or may.
// Nothing of what it asks reports whether a region is full.
func (d driver) room(ctx context.Context, a *account, o cloud.Offer, nodes int) error {
	size, err := d.size(ctx, a, o)
	if err != nil {
		return err
	}
	if why := size.closed(o.Region); why != "" {
		return &cloud.CapacityError{Place: o.Place, Err: fmt.Errorf("Azure does not offer %s to this subscription in %s (%s); ask for it at https://aka.ms/azureskunotavailable", o.InstanceType, o.Region, why)}
	}
	if o.Spot && size.capability("LowPriorityCapable") == "False" {
		return &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("Azure has no spot machines of %s", o.InstanceType)}
	}
	usages, err := d.usages(ctx, a, o.Region)
	if err != nil {
		var auth *cloud.AuthError
		if refused := d.Refused(ctx, o.Place, err); errors.As(refused, &auth) || ctx.Err() != nil {
			return refused
		}
		return nil // a quota that is not told proves nothing
	}
	counted := []string{size.Family, "cores"}
	if o.Spot {
		counted = []string{"lowPriorityCores"}
	}
	need := size.cores() * nodes
	for _, u := range usages {
		if u.Limit >= 0 && u.Limit-u.Used < need && slices.ContainsFunc(counted, func(name string) bool { return strings.EqualFold(name, u.Name.Value) }) {
			return &cloud.QuotaError{Place: cloud.Place{Cloud: Name, Region: o.Region}, Err: fmt.Errorf("of the quota %q of %s %d of %d cores are in use, and this takes %d; ask for more at https://portal.azure.com (Quotas)",
				u.Name.Value, o.Region, u.Used, u.Limit, need)}
		}
	}
	return nil
}

// Available says what is known of an offer without asking for it: sizes that are closed
// to the subscription, and quotas.
func (p *Provider) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	answer := cloud.Availability{Verdict: cloud.AvailabilityUnknown, At: time.Now()}
	a, err := p.account(ctx)
	if err == nil {
		_, err = driver{p, refusals}.roomBeside(ctx, a, p.o.Settings(), o, nodes)
	}
	var full *cloud.CapacityError
	var quota *cloud.QuotaError
	if errors.As(err, &full) || errors.As(err, &quota) {
		answer.Verdict, answer.Reason = cloud.AvailableNone, err.Error()
		return answer, nil
	}
	return answer, p.Refused(ctx, o.Place, err)
}

// Quotas are those of cores, and of what else machines are made of, in a region.
func (p *Provider) Quotas(ctx context.Context, region string) ([]cloud.Quota, error) {
	at := cloud.Place{Cloud: Name, Region: region}
	a, err := p.account(ctx)
	if err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	usages, err := driver{p, refusals}.usages(ctx, a, region)
	if err != nil {
		return nil, p.Refused(ctx, at, err)
	}
	var out []cloud.Quota
	for _, u := range usages {
		out = append(out, cloud.Quota{Place: at, Name: u.Name.Value, Limit: u.Limit, Used: u.Used})
	}
	return out, nil
}
