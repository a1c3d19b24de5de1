package config

import "github.com/skypilot-go/sky/internal/schema"

// catalogKeys describe where prices come from and what the user knows better.
func catalogKeys() *schema.Spec {
	price := schema.Section("A price of one's own.",
		schema.New("instance_type", schema.Text("The machine it is for.")),
		schema.New("region", schema.Text("Where it holds; everywhere when absent.")),
		schema.New("price", schema.Number("Dollars per hour.").AtLeast(0)),
		schema.New("spot_price", schema.Number("Dollars per hour as spot.").AtLeast(0))).Needs("instance_type")
	override := schema.Section("One cloud's prices as the user knows them.",
		schema.New("file", schema.Text("CSV whose rows replace or complete those of the price list.")),
		schema.New("discount", schema.Number("Part of every price that need not be paid, from 0 to 1.").AtLeast(0).Defaults(0)),
		schema.New("prices", schema.List("Prices that differ from the list.", price)))
	return schema.Section("Price lists.",
		schema.New("base_url", schema.Text("Where hosted price lists are fetched; the public place when absent.").Matching(schema.Regexp(`^https?://.+$`, "an http(s) URL"))),
		schema.New("mirror_url", schema.Text("Where they are fetched when that place refuses.").Matching(schema.Regexp(`^https?://.+$`, "an http(s) URL"))),
		schema.New("offline", schema.YesNo("Never fetch: what is on disk is all there is.", false)),
		schema.New("refresh_hours", byCloud("Hours after which a cloud's list is fetched again; 0: never.", schema.Number("Hours.").AtLeast(0))),
		schema.New("overrides", byCloud("Own prices, by cloud.", override)),
	).OnServer()
}

// byCloud is a map whose keys are clouds.
func byCloud(doc string, item *schema.Spec) *schema.Spec {
	var out []schema.Key
	for _, c := range Clouds() {
		out = append(out, schema.New(c, item))
	}
	return schema.Section(doc, out...)
}
