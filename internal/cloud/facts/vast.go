package facts

import "github.com/skypilot-go/sky/internal/config/keys"

var vast = Cloud{
	Name: "vast", Display: "Vast",
	Settings: func() *keys.Spec {
		return keys.Section("Vast.",
			keys.New("datacenter_only", keys.YesNo("Use machines in data centres only.", false).ForTasks()),
			keys.New("create_instance_kwargs", keys.Section("More fields for creating an instance.",
				keys.New("login", keys.Anything("Registry login.").Hidden()),
				keys.New("api_key", keys.Anything("API key.").Hidden())).Opened().ForTasks()),
			identity(localCredentials))
	},
	TaskExample: "{datacenter_only: true}",
}
