package aws

import (
	"context"
	"errors"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/skypilot-go/sky/internal/cloud"
)

var errNoQuota = errors.New("there is no such quota")

// quota is the account's limit of what the code counts in a region.
func (p *Provider) quota(ctx context.Context, region, code string) (int, error) {
	client, err := p.quotas(ctx, region)
	if err != nil {
		return 0, err
	}
	out, err := client.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: sdk.String("ec2"), QuotaCode: sdk.String(code)})
	if codeOf(err) == "NoSuchResourceException" {
		return 0, errNoQuota
	}
	if err != nil {
		return 0, translate(ctx, cloud.Place{Cloud: Name, Region: region}, err)
	}
	if out.Quota == nil || out.Quota.Value == nil {
		return 0, errNoQuota
	}
	return int(*out.Quota.Value), nil
}
