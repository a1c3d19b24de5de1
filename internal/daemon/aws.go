package daemon

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/aws"
	"github.com/skypilot-go/sky/internal/config"
)

// images are those of a cloud's price list.
func (d *daemon) images(cloudName string) cloud.Images {
	return func(ctx context.Context, tag, region string) (string, bool) {
		table, err := d.catalogs.Table(ctx, cloudName)
		if err != nil {
			return "", false
		}
		i, ok := table.Images.Find(tag, region)
		return i.ID, ok
	}
}

// awsOptions tell the AWS provider what this server knows of the account:
// images and quotas from the price list, settings from the configuration.
func (d *daemon) awsOptions() aws.Options {
	return aws.Options{
		Settings: func() aws.Settings {
			return aws.ReadSettings(d.settings.current().For(config.Scope{Cloud: aws.Name}).Written())
		},
		Image: d.images(aws.Name),
		QuotaCode: func(ctx context.Context, instanceType string, spot bool) string {
			quotas, err := d.catalogs.Quotas(ctx, aws.Name)
			if err != nil {
				return ""
			}
			if spot {
				return quotas[instanceType].Spot
			}
			return quotas[instanceType].OnDemand
		},
		Zones: func(user string, names map[string]string) {
			if err := d.catalogs.SetZoneNames(aws.Name, user, names); err != nil {
				d.log.Warn("the account's zones could not be noted; offers name zones by their ids", "err", err)
			}
		},
	}
}
