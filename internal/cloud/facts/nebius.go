package facts

import (
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/schema"
)

var nebius = Cloud{
	Name: "nebius", Display: "Nebius",
	Prices:  &Prices{Hosted: true, Family: lazyregexp.New(`^cpu-`), Disk: func(_, tier string) bool { return tier != "ultra" }},
	Lacks:   []Feature{LocalDisk},
	Schemes: []string{"nebius"}, StoreKeys: true,
	Settings: func() *schema.Spec {
		return schema.Section("Nebius.",
			internalIPs(), proxyCommand(),
			schema.New("use_personal_pricing", schema.YesNo("Plan with the prices of your own contract.", true).NoEffect("plans use Nebius's public prices; write yours under catalogs.overrides.nebius")),
			schema.New("use_static_ip_address", schema.YesNo("Keep a machine's public address when it stops.", false)),
			schema.New("tenant_id", schema.Text("Tenant.").ByAdmins(schema.Rights)),
			schema.New("domain", schema.Text("Address of the API.").ByAdmins(schema.Connects)),
			schema.New("security_group_name", schema.Text("Security group of machines.")),
			schema.New("region_configs", schema.Dict("Settings of regions.", schema.Section("A region.",
				schema.New("project_id", schema.Text("Project to launch in.")),
				schema.New("subnet_id", schema.Text("Subnet to launch in.")),
				schema.New("fabric", schema.Text("InfiniBand fabric.")),
				schema.New("filesystems", schema.List("Shared file systems to attach.", schema.Section("A file system.",
					schema.New("filesystem_id", schema.Text("Its id.")),
					schema.New("attach_mode", schema.Choice("How it is attached.", "READ_WRITE", "READ_ONLY")),
					schema.New("mount_path", schema.Text("Where it appears."))))),
			).Opened())),
			identity(localCredentials),
		).Opened()
	},
	Workspace: func() *schema.Spec {
		return schema.Section("Nebius in this workspace.",
			schema.New("credentials_file_path", schema.Text("Credentials to use.")),
			schema.New("tenant_id", schema.Text("Tenant.")),
			schema.New("domain", schema.Text("Address of the API.")))
	},
	Narrower: func(region, _ string) [][]string { return [][]string{{"region_configs", region}} },
}
