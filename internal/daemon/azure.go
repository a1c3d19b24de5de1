package daemon

import (
	"github.com/skypilot-go/sky/internal/cloud/azure"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/config"
)

// azureOptions tell the Azure provider what this server knows: images from the price
// list, settings from the configuration.
func (d *daemon) azureOptions() azure.Options {
	return azure.Options{
		Tuning:   vm.Tuning{Home: d.o.Home},
		Settings: func() map[string]any { return d.settings.current().For(config.Scope{Cloud: azure.Name}).Written() },
		Image:    d.images(azure.Name),
	}
}
