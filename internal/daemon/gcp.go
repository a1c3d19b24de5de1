package daemon

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud/gcp"
	"github.com/skypilot-go/sky/internal/config"
)

// gcpOptions tell the GCP provider what this server knows of the project: images and
// quotas from the price list, settings from the configuration.
func (d *daemon) gcpOptions() gcp.Options {
	return gcp.Options{
		Settings: func() gcp.Settings {
			return gcp.ReadSettings(d.settings.current().For(config.Scope{Cloud: gcp.Name}).Written())
		},
		Projects: func() (all []string) {
			c := d.settings.current()
			for _, w := range c.Workspaces() {
				all = append(all, gcp.ReadSettings(c.For(config.Scope{Cloud: gcp.Name, Workspace: w.Name}).Written()).Project)
			}
			return all
		},
		Image: d.images(gcp.Name),
		Quota: func(ctx context.Context, accelerator string, spot bool) string {
			quotas, err := d.catalogs.Quotas(ctx, gcp.Name)
			if err != nil {
				return ""
			}
			if spot {
				return quotas[accelerator].Spot
			}
			return quotas[accelerator].OnDemand
		},
	}
}
