package config

import "github.com/skypilot-go/sky/internal/schema"

func provisionKeys() *schema.Spec {
	return schema.Section("How places for machines are chosen and tried, and how new machines are set up.",
		schema.New("ssh_timeout", schema.Whole("Seconds that each step of one attempt to connect may take; what is set when the server starts.").AtLeast(1).Defaults(15).OnServer()),
		schema.New("install_conda", schema.YesNo("Whether nodes get conda.", true).NoEffect("nodes get nothing but the agent; use an image with conda, or install it in setup")),
		schema.New("ranking", schema.Choice("Which of the places that fit is tried first: the cheapest that is likely to have room (availability), or the cheapest (price).",
			"availability", "price").Defaults("availability").ForTasks()),
		schema.New("availability_half_life_minutes", schema.Number("Minutes after which what an attempt has seen of a place counts half.").AtLeast(1).Defaults(90).ForTasks()),
		schema.New("ask_first", schema.YesNo("Ask clouds that can tell whether there is room before renting there; places without are tried last.", true).ForTasks()),
		schema.New("hedge", schema.Whole("How many attempts may be under way at once: the next starts when the others take longer than nine in ten do. 1: one after the other.").
			AtLeast(1).Defaults(1).ForTasks()),
		schema.New("hedge_price", schema.Number("What an attempt beside another may cost at most, as a multiple of the cheapest under way.").AtLeast(1).Defaults(2).ForTasks()),
		schema.New("retry_hours", schema.Number("Hours after which --retry-until-up gives up; 0: never.").AtLeast(0).Defaults(0).ForTasks()),
		schema.New("sweep", schema.Section("Looking for machines that belong to no cluster on record.",
			schema.New("interval_minutes", schema.Number("Minutes between two looks of the server.").AtLeast(1).Defaults(10)),
			schema.New("grace_minutes", schema.Number("Minutes for which such a machine must have been there before it counts.").AtLeast(1).Defaults(5)),
			schema.New("terminate", schema.YesNo("End also what no record explains, rather than report it only. What a launch of ours made and gave up is always ended.", false))).OnServer()),
	)
}
