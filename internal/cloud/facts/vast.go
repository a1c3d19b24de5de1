package facts

import "github.com/skypilot-go/sky/internal/config/keys"

var vast = Cloud{
	Name: "vast", Display: "Vast",
	Prices: &Prices{AnySize: true},
	Lacks:  []Feature{MultiNode, DiskTier, NetTier, LocalDisk, Storage},
	Settings: func() *keys.Spec {
		return keys.Section("Vast. Its machines are strangers'; only those that pass all of this are rented.",
			keys.New("datacenter_only", keys.YesNo("Use machines in data centres only.", false).ForTasks()),
			keys.New("verified", keys.YesNo("Use machines only that Vast has verified.", true).ForTasks()),
			keys.New("min_reliability", keys.Number("The lowest reliability score of a machine, from 0 to 1.").AtLeast(0).Defaults(0.95).ForTasks()),
			keys.New("min_bandwidth", keys.Number("The lowest download bandwidth of a machine, in Mbit/s.").AtLeast(0).Defaults(100).ForTasks()),
			keys.New("min_disk_bandwidth", keys.Number("The lowest read bandwidth of a machine's disk, in MB/s.").AtLeast(0).Defaults(200).ForTasks()),
			keys.New("min_cuda", keys.Number("The lowest version of CUDA that a machine's driver supports.").AtLeast(0).Defaults(12.0).ForTasks()),
			keys.New("countries", keys.List("Where machines may be, by two-letter codes of countries; absent: anywhere.", keys.Text("A country, such as SE.")).ForTasks()),
			keys.New("create_instance_kwargs", keys.Section("More fields for creating an instance.",
				keys.New("login", keys.Anything("Registry login.").Hidden()),
				keys.New("api_key", keys.Anything("API key.").Hidden())).Opened().ForTasks()),
			identity(localCredentials))
	},
	TaskExample: "{datacenter_only: true}",
}
