package optimizer

import (
	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// CatalogSource makes a Source of a price list; lacks is what the provider's
// Features say the cloud cannot do.
func CatalogSource(t *catalog.Table, lacks map[cloud.Feature]string) Source {
	return priceList{t, lacks}
}

type priceList struct {
	*catalog.Table
	lacks map[cloud.Feature]string
}

func (p priceList) Lacks() map[cloud.Feature]string { return p.lacks }
