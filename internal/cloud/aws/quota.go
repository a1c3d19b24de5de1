package aws

import (
	"context"
	"errors"

	"github.com/skypilot-go/sky/internal/cloud"
)

var errNoQuota = errors.New("there is no such quota")

// quota is the account's limit of what the code counts in a region.
func (p *Provider) quota(ctx context.Context, region, code string) (int, error) {
	var out struct{ Quota struct{ Value *float64 } }
	err := p.jsonCall(ctx, region, serviceQuotas, "GetServiceQuota", map[string]string{"ServiceCode": "ec2", "QuotaCode": code}, &out)
	if codeOf(err) == "NoSuchResourceException" {
		return 0, errNoQuota
	}
	if err != nil {
		return 0, translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
	}
	if out.Quota.Value == nil {
		return 0, errNoQuota
	}
	return int(*out.Quota.Value), nil
}
