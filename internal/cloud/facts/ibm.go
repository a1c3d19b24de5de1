package facts

import (
	"math"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var ibm = Cloud{
	Name: "ibm", Display: "IBM", Regions: "price list, with zones",
	Prices:  &Prices{Hosted: true, Family: lazyregexp.New(`^bx2-`)},
	Lacks:   []Feature{Spot, Docker, DiskTier, NetTier, LocalDisk},
	Egress:  []Tier{{50, 0.09}, {150, 0.07}, {math.Inf(1), 0.05}},
	Schemes: []string{"cos"}, StoreKeys: true, StoreFiles: []string{".ibm/credentials.yaml"},
}
