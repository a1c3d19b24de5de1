package config

func provisionKeys() *Spec {
	return section("How places for machines are chosen and tried, and how new machines are set up.",
		Key{"ssh_timeout", whole("Seconds that each step of one attempt to connect may take; what is set when the server starts.").min(1).def(15).serverOnly()},
		Key{"install_conda", yesNo("Whether nodes get conda.", true).inert("nodes get nothing but the agent; use an image with conda, or install it in setup")},
		Key{"ranking", choice("Which of the places that fit is tried first: the cheapest that is likely to have room (availability), or the cheapest (price).",
			"availability", "price").def("availability").task()},
		Key{"availability_half_life_minutes", number("Minutes after which what an attempt has seen of a place counts half.").min(1).def(90).task()},
		Key{"ask_first", yesNo("Ask clouds that can tell whether there is room before renting there; places without are tried last.", true).task()},
		Key{"hedge", whole("How many attempts may be under way at once: the next starts when the others take longer than nine in ten do. 1: one after the other.").
			min(1).def(1).task()},
		Key{"hedge_price", number("What an attempt beside another may cost at most, as a multiple of the cheapest under way.").min(1).def(2).task()},
		Key{"retry_hours", number("Hours after which --retry-until-up gives up; 0: never.").min(0).def(0).task()},
		Key{"sweep", section("Looking for machines that belong to no cluster on record.",
			Key{"interval_minutes", number("Minutes between two looks of the server.").min(1).def(10)},
			Key{"grace_minutes", number("Minutes for which such a machine must have been there before it counts.").min(1).def(5)},
			Key{"terminate", yesNo("End also what no record explains, rather than report it only. What a launch of ours made and gave up is always ended.", false)}).serverOnly()},
	)
}
