package task

import (
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func groupHeaderSchema() *schema.Spec {
	seconds := durationSchema
	name := `[a-zA-Z0-9_-]+`
	s := openObject(
		field{name: "name", is: matching(name, "letters, digits, - and _"), required: true, doc: "Name of the job group.", example: "my-group"},
		field{name: "execution", is: choice(string(Parallel)), required: true, doc: "parallel: all jobs at the same time.", example: "parallel"},
		field{name: "schedule", is: scheduleSchema(), doc: "Submits the group again and again.", example: "@daily"},
		field{name: "primary_tasks", is: list(text()).Or(yaml11.Null), doc: "The jobs whose end is the end of the group.", def: "all", example: "[trainer]"},
		field{name: "termination_delay", is: seconds().With(mapOf(seconds())).Or(yaml11.Null), doc: "How long the other jobs go on after that; by job, or default.", def: "0", example: "30s"},
	)
	s.Title = "the header of a job group"
	return s
}

// durationSchema is seconds, or a number with a unit.
func durationSchema() *schema.Spec {
	return checked(text().Or(yaml11.Int), func(s string) error { _, err := ParseSeconds(s); return err }, durationPattern)
}
