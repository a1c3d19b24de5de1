package facts

import (
	"math"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
)

var oci = Cloud{
	Name: "oci", Display: "OCI", Regions: "price list, with availability domains", Wrong: []string{"oracle"},
	Prices: &Prices{
		Hosted: true, Beside: []string{Images},
		Family: lazyregexp.New(`^VM\.Standard(\.E|3)`),
		Arm:    lazyregexp.New(`^(VM|BM)\.Standard\.A`),
		Disk:   func(_, tier string) bool { return tier != "ultra" },
	},
	Lacks:   []Feature{Docker, NetTier, LocalDisk},
	Egress:  []Tier{{10240, 0}, {math.Inf(1), 0.0085}},
	Schemes: []string{"oci"}, StoreKeys: true,
	Settings: func() *schema.Spec {
		return schema.Section("Oracle Cloud.",
			schema.New("region_configs", schema.Dict("Settings of regions; the entry default serves the rest.", schema.Section("A region.",
				schema.New("compartment_ocid", schema.Text("Compartment to launch in.")),
				schema.New("image_tag_general", schema.Text("Image of machines.").Defaults("skypilot:cpu-ubuntu-2204")),
				schema.New("image_tag_gpu", schema.Text("Image of machines with GPUs.").Defaults("skypilot:gpu-ubuntu-2204")),
				schema.New("vcn_ocid", schema.Text("Network to launch in.")),
				schema.New("vcn_subnet", schema.Text("Subnet to launch in.")),
			).Without("OCI_CLI_PROFILE names the profile of ~/.oci/config", "oci_config_profile"))),
			identity(localCredentials),
		).Opened()
	},
	Narrower: func(region, _ string) [][]string {
		return [][]string{{"region_configs", "default"}, {"region_configs", region}}
	},
}
