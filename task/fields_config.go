package task

import (
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/schema"

	"github.com/skypilot-go/sky/internal/yaml11"
)

func configSchema() *schema.Spec {
	hook := object(
		field{name: "run", is: &schema.Spec{Kinds: yaml11.Text, MaxLen: 16384}, required: true, doc: "Shell commands for the head node.", example: "./save.sh"},
		field{name: "events", is: set(choice(HookEvents...)), doc: "When it runs.", def: "[stop, preemption, down]", example: "[preemption]"},
		field{name: "timeout", is: integer().AtLeast(1), doc: "Seconds it may take.", def: "3600", example: "300"},
	)
	hooks := list(hook)
	hooks.MaxItems = 32
	fields := []field{
		{name: "active_workspace", is: text(), doc: "Workspace the task belongs to.", example: "team-a"},
		{name: "docker", is: object(field{name: "run_options", is: anything(), doc: "Further options of docker run."}), doc: "Containers.", example: "{run_options: --ipc=host}"},
		{name: "nvidia_gpus", is: object(field{name: "disable_ecc", is: boolean(), doc: "Whether to switch off ECC memory.", def: "false", example: "true"}), doc: "NVIDIA GPUs.", example: "{disable_ecc: true}"},
	}
	for _, c := range facts.All() {
		if f, ok := cloudSection(c); ok {
			fields = append(fields, f)
		}
	}
	return object(append(fields,
		field{name: "hooks", is: hooks, doc: "Commands that run on the head node before the cluster goes away.", example: "[{run: ./save.sh, events: [preemption]}]"},
	)...)
}

// cloudSection has the settings of a cloud that tasks may have; ok is false if there
// are none. What their values must be is checked where configurations are.
func cloudSection(c *facts.Cloud) (f field, ok bool) {
	if c.Settings == nil {
		return field{}, false
	}
	section := c.Settings()
	var may []field
	for _, k := range section.Keys {
		if k.TaskMay {
			may = append(may, field{name: k.Name, is: anything(), doc: k.Doc})
		}
	}
	is := object(may...)
	if section.OpenToNewer {
		is.Opened()
	}
	return field{name: c.Name, is: is, doc: section.Doc, example: c.TaskExample}, len(may) > 0
}

// HookEvents has the words of config.hooks[].events.
var HookEvents = []string{"stop", "preemption", "down"}
