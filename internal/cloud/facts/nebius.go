package facts

import (
	"github.com/skypilot-go/sky/internal/config/keys"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var nebius = Cloud{
	Name: "nebius", Display: "Nebius",
	Prices:  &Prices{Hosted: true, Family: lazyregexp.New(`^cpu-`), Disk: func(_, tier string) bool { return tier != "ultra" }},
	Lacks:   []Feature{LocalDisk, Storage},
	Schemes: []string{"nebius"},
	Settings: func() *keys.Spec {
		return keys.Section("Nebius.",
			internalIPs(), proxyCommand(),
			keys.New("use_static_ip_address", keys.YesNo("Keep a machine's public address when it stops.", false)),
			keys.New("tenant_id", keys.Text("Tenant.").ByAdmins(keys.Rights)),
			keys.New("domain", keys.Text("Address of the API.").ByAdmins(keys.Connects)),
			keys.New("security_group_name", keys.Text("Security group of machines.")),
			keys.New("region_configs", keys.Dict("Settings of regions.", keys.Section("A region.",
				keys.New("project_id", keys.Text("Project to launch in.")),
				keys.New("subnet_id", keys.Text("Subnet to launch in.")),
				keys.New("fabric", keys.Text("InfiniBand fabric.")),
				keys.New("filesystems", keys.List("Shared file systems to attach.", keys.Section("A file system.",
					keys.New("filesystem_id", keys.Text("Its id.")),
					keys.New("attach_mode", keys.Choice("How it is attached.", "READ_WRITE", "READ_ONLY")),
					keys.New("mount_path", keys.Text("Where it appears."))))),
			).Opened())),
			identity(localCredentials),
		).Opened()
	},
	Workspace: func() *keys.Spec {
		return keys.Section("Nebius in this workspace.",
			keys.New("credentials_file_path", keys.Text("Credentials to use.")),
			keys.New("tenant_id", keys.Text("Tenant.")),
			keys.New("domain", keys.Text("Address of the API.")))
	},
	Narrower: func(region, _ string) [][]string { return [][]string{{"region_configs", region}} },
}
