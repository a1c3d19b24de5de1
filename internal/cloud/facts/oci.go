package facts

import (
	"math"

	"github.com/skypilot-go/sky/internal/config/keys"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var oci = Cloud{
	Name: "oci", Display: "OCI", Wrong: []string{"oracle"},
	Prices: &Prices{
		Hosted: true, Beside: []string{Images},
		Family: lazyregexp.New(`^VM\.Standard(\.E|3)`),
		Arm:    lazyregexp.New(`^(VM|BM)\.Standard\.A`),
		Disk:   func(_, tier string) bool { return tier != "ultra" },
	},
	Lacks:   []Feature{Docker, NetTier, LocalDisk, Storage},
	Egress:  []Tier{{10240, 0}, {math.Inf(1), 0.0085}},
	Schemes: []string{"oci"},
	Settings: func() *keys.Spec {
		return keys.Section("Oracle Cloud.",
			keys.New("region_configs", keys.Dict("Settings of regions; the entry default serves the rest.", keys.Section("A region.",
				keys.New("compartment_ocid", keys.Text("Compartment to launch in.")),
				keys.New("image_tag_general", keys.Text("Image of machines.").Defaults("skypilot:cpu-ubuntu-2204")),
				keys.New("image_tag_gpu", keys.Text("Image of machines with GPUs.").Defaults("skypilot:gpu-ubuntu-2204")),
				keys.New("vcn_ocid", keys.Text("Network to launch in.")),
				keys.New("vcn_subnet", keys.Text("Subnet to launch in.")),
			).Formerly("oci_config_profile", "the profile of ~/.oci/config that OCI_CLI_PROFILE names"))),
			identity(localCredentials),
		).Opened()
	},
	Narrower: func(region, _ string) [][]string {
		return [][]string{{"region_configs", "default"}, {"region_configs", region}}
	},
}
