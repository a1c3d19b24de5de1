package config

// catalogKeys describe where prices come from and what the user knows better.
func catalogKeys() *Spec {
	price := section("A price of one's own.",
		Key{"instance_type", text("The machine it is for.")},
		Key{"region", text("Where it holds; everywhere when absent.")},
		Key{"price", number("Dollars per hour.").min(0)},
		Key{"spot_price", number("Dollars per hour as spot.").min(0)}).need("instance_type")
	override := section("One cloud's prices as the user knows them.",
		Key{"file", text("CSV whose rows replace or complete those of the price list.")},
		Key{"discount", number("Part of every price that need not be paid, from 0 to 1.").min(0).def(0)},
		Key{"prices", list("Prices that differ from the list.", price)})
	return section("Price lists.",
		Key{"base_url", text("Where hosted price lists are fetched; the public place when absent.").match(pattern(`^https?://.+$`, "an http(s) URL"))},
		Key{"mirror_url", text("Where they are fetched when that place refuses.").match(pattern(`^https?://.+$`, "an http(s) URL"))},
		Key{"offline", yesNo("Never fetch: what is on disk is all there is.", false)},
		Key{"refresh_hours", byCloud("Hours after which a cloud's list is fetched again; 0: never.", number("Hours.").min(0))},
		Key{"overrides", byCloud("Own prices, by cloud.", override)},
	).serverOnly()
}

// byCloud is a map whose keys are clouds.
func byCloud(doc string, item *Spec) *Spec {
	var keys []Key
	for _, c := range clouds {
		keys = append(keys, Key{c, item})
	}
	return section(doc, keys...)
}
