package daemon

import (
	"log/slog"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config"
)

// catalogOptions is what the configuration says about price lists.
func catalogOptions(c *config.Config, dir string, log *slog.Logger) catalog.StoreOptions {
	o := catalog.StoreOptions{
		Dir: dir, BaseURL: c.Text("catalogs", "base_url"), MirrorURL: c.Text("catalogs", "mirror_url"),
		Offline: c.Bool("catalogs", "offline"), Logger: log,
		Refresh: map[string]time.Duration{}, Overrides: map[string]catalog.Override{},
	}
	for _, name := range facts.Names((*facts.Cloud).Rents) { // of others than published lists, too: those that people make
		if _, set := c.Get("catalogs", "refresh_hours", name); set {
			o.Refresh[name] = time.Duration(c.Float("catalogs", "refresh_hours", name) * float64(time.Hour))
		}
		if v, set := c.Get("catalogs", "overrides", name); set {
			o.Overrides[name] = override(c, name, v)
		}
	}
	return o
}

func override(c *config.Config, cloud string, v any) catalog.Override {
	o := catalog.Override{
		File:     c.Path("catalogs", "overrides", cloud, "file"),
		Discount: c.Float("catalogs", "overrides", cloud, "discount"),
	}
	section, _ := v.(map[string]any)
	prices, _ := section["prices"].([]any)
	for _, p := range prices {
		m, _ := p.(map[string]any)
		typ, _ := m["instance_type"].(string)
		region, _ := m["region"].(string)
		o.Prices = append(o.Prices, catalog.PriceOverride{
			InstanceType: typ, Region: region, Price: dollars(m["price"]), SpotPrice: dollars(m["spot_price"]),
		})
	}
	return o
}

// dollars reads a number that may be absent.
func dollars(v any) *float64 {
	var f float64
	switch n := v.(type) {
	case int:
		f = float64(n)
	case int64:
		f = float64(n)
	case float64:
		f = n
	default:
		return nil
	}
	return &f
}
