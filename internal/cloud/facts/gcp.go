package facts

import (
	"time"

	"math"

	"github.com/skypilot-go/sky/internal/config/keys"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var gcp = Cloud{
	Name: "gcp", Display: "GCP", Wrong: []string{"google"},
	Prices: &Prices{
		Hosted: true, Refresh: 7 * time.Hour, Beside: []string{Images, AcceleratorQuotas}, EachZone: true, Attached: true,
		Family:  lazyregexp.New(`^n[24]-(standard|highmem|highcpu)-`),
		Arm:     lazyregexp.New(`^(t2a|c4a|n4a)-`),
		Special: lazyregexp.New(`^(a[0-9]|g2|g4)-`), // hosts of accelerators
	},
	Lacks:   []Feature{LocalDisk},
	Egress:  []Tier{{1024, 0.12}, {10240, 0.11}, {math.Inf(1), 0.08}},
	Schemes: []string{"gs"},
	Notices: GoogleMetadata,
	Disks:   true,
	Label: func(key, value string) string {
		switch {
		case !gcpLabelKey.MatchString(key):
			return "a key has up to 63 lower-case letters, digits, _ and -, beginning with a letter"
		case !gcpLabelValue.MatchString(value):
			return "a value has up to 63 lower-case letters, digits, _ and -"
		}
		return ""
	},
	Settings: func() *keys.Spec {
		return keys.Section("Google Cloud.",
			prioritize(), reservations(),
			keys.New("managed_instance_group", keys.Section("Launch through a managed instance group (DWS).",
				keys.New("run_duration", keys.Whole("Seconds that machines live.")),
				keys.New("provision_timeout", keys.Whole("Seconds to wait for capacity.").Defaults(900))).Needs("run_duration").ForTasks()),
			keys.New("force_enable_external_ips", keys.YesNo("Give machines public addresses whatever the network says.", false)),
			keys.New("enable_gvnic", keys.YesNo("Use gVNIC network cards.", false).ForTasks()),
			keys.New("enable_gpu_direct", keys.YesNo("Use GPUDirect between machines.", false).ForTasks()),
			keys.New("placement_policy", keys.Text("Placement policy of machines.").ForTasks()),
			keys.New("vpc_name", keys.Text("VPC to launch in, with its project when shared.").Or(keys.NullKind).ForTasks().
				Matching(keys.Regexp(`^(?:[-a-z0-9]+/)?[-a-z0-9]+$`, `a VPC name or "project/name"`))),
			keys.New("subnet_names", names("Subnets to launch in.").ForTasks()),
			capabilities(), labels(), internalIPs(), proxyCommand(), identity(localCredentials),
		).Formerly("instance_tags", "labels")
	},
	Workspace: func() *keys.Spec {
		return keys.Section("Google Cloud in this workspace.",
			keys.New("project_id", keys.Text("Project to use.")), capabilities(), identity(localCredentials))
	},
	TaskExample: "{enable_gvnic: true}",
}

var (
	gcpLabelKey   = lazyregexp.New(`^[a-z]([a-z0-9_-]{0,62})?$`)
	gcpLabelValue = lazyregexp.New(`^[a-z0-9_-]{0,63}$`)
)
