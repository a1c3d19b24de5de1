package config

import "github.com/skypilot-go/sky/internal/config/keys"

// catalogKeys describe where prices come from and what the user knows better.
func catalogKeys() *keys.Spec {
	price := keys.Section("A price of one's own.",
		keys.New("instance_type", keys.Text("The machine it is for.")),
		keys.New("region", keys.Text("Where it holds; everywhere when absent.")),
		keys.New("price", keys.Number("Dollars per hour.").AtLeast(0)),
		keys.New("spot_price", keys.Number("Dollars per hour as spot.").AtLeast(0))).Needs("instance_type")
	override := keys.Section("One cloud's prices as the user knows them.",
		keys.New("file", keys.Text("CSV whose rows replace or complete those of the price list.")),
		keys.New("discount", keys.Number("Part of every price that need not be paid, from 0 to 1.").AtLeast(0).Defaults(0)),
		keys.New("prices", keys.List("Prices that differ from the list.", price)))
	return keys.Section("Price lists.",
		keys.New("base_url", keys.Text("Where hosted price lists are fetched; the public place when absent.").Matching(keys.Regexp(`^https?://.+$`, "an http(s) URL"))),
		keys.New("mirror_url", keys.Text("Where they are fetched when that place refuses.").Matching(keys.Regexp(`^https?://.+$`, "an http(s) URL"))),
		keys.New("offline", keys.YesNo("Never fetch: what is on disk is all there is.", false)),
		keys.New("refresh_hours", byCloud("Hours after which a cloud's list is fetched again; 0: never.", keys.Number("Hours.").AtLeast(0))),
		keys.New("overrides", byCloud("Own prices, by cloud.", override)),
	).OnServer()
}

// byCloud is a map whose keys are clouds.
func byCloud(doc string, item *keys.Spec) *keys.Spec {
	var out []keys.Key
	for _, c := range Clouds() {
		out = append(out, keys.New(c, item))
	}
	return keys.Section(doc, out...)
}
