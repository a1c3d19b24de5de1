package facts

import "github.com/skypilot-go/sky/internal/schema"

var vast = Cloud{
	Name: "vast", Display: "Vast", Regions: "offered now: countries",
	Prices: &Prices{AnySize: true, Columns: []Column{HostingType}},
	Lacks:  []Feature{MultiNode, DiskTier, NetTier, LocalDisk, Storage},
	Settings: func() *schema.Spec {
		return schema.Section("Vast. Its machines are strangers'; only those that pass all of this are rented.",
			schema.New("datacenter_only", schema.YesNo("Use machines in data centres only.", false).ForTasks()),
			schema.New("verified", schema.YesNo("Use machines only that Vast has verified.", true).ForTasks()),
			schema.New("min_reliability", schema.Number("The lowest reliability score of a machine, from 0 to 1.").AtLeast(0).Defaults(0.95).ForTasks()),
			schema.New("min_bandwidth", schema.Number("The lowest download bandwidth of a machine, in Mbit/s.").AtLeast(0).Defaults(100).ForTasks()),
			schema.New("min_disk_bandwidth", schema.Number("The lowest read bandwidth of a machine's disk, in MB/s.").AtLeast(0).Defaults(200).ForTasks()),
			schema.New("min_cuda", schema.Number("The lowest version of CUDA that a machine's driver supports.").AtLeast(0).Defaults(12.0).ForTasks()),
			schema.New("countries", schema.List("Where machines may be, by two-letter codes of countries; absent: anywhere.", schema.Text("A country, such as SE.")).ForTasks()),
			schema.New("create_instance_kwargs", schema.Section("More fields for creating an instance.",
				schema.New("login", schema.Anything("Registry login.").Hidden()),
				schema.New("api_key", schema.Anything("API key.").Hidden())).Opened().ForTasks()),
			identity(localCredentials))
	},
	TaskExample: "{datacenter_only: true}",
}
