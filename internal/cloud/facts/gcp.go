package facts

import (
	"time"

	"math"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
)

var gcp = Cloud{
	Name: "gcp", Display: "GCP", Regions: "price list, with zones", Wrong: []string{"google"},
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
	Settings: func() *schema.Spec {
		return schema.Section("Google Cloud.",
			prioritize(), reservations(),
			schema.New("managed_instance_group", schema.Section("Launch through a managed instance group (DWS).",
				schema.New("run_duration", schema.Whole("Seconds that machines live.")),
				schema.New("provision_timeout", schema.Whole("Seconds to wait for capacity.").Defaults(900))).Needs("run_duration").ForTasks()),
			schema.New("force_enable_external_ips", schema.YesNo("Give machines public addresses whatever the network says.", false)),
			schema.New("enable_gvnic", schema.YesNo("Use gVNIC network cards.", false).ForTasks()),
			schema.New("enable_gpu_direct", schema.YesNo("Use GPUDirect between machines.", false).ForTasks()),
			schema.New("placement_policy", schema.Text("Placement policy of machines.").ForTasks()),
			schema.New("vpc_name", schema.Text("VPC to launch in, with its project when shared.").Or(schema.NullKind).ForTasks().
				Matching(schema.Regexp(`^(?:[-a-z0-9]+/)?[-a-z0-9]+$`, `a VPC name or "project/name"`))),
			schema.New("subnet_names", names("Subnets to launch in.").ForTasks()),
			capabilities(), labels(), internalIPs(), proxyCommand(), identity(localCredentials),
		).Without(`write "labels"`, "instance_tags")
	},
	Workspace: func() *schema.Spec {
		return schema.Section("Google Cloud in this workspace.",
			schema.New("project_id", schema.Text("Project to use.")), capabilities(), identity(localCredentials))
	},
	TaskExample: "{enable_gvnic: true}",
}

var (
	gcpLabelKey   = lazyregexp.New(`^[a-z]([a-z0-9_-]{0,62})?$`)
	gcpLabelValue = lazyregexp.New(`^[a-z0-9_-]{0,63}$`)
)
