package facts

import "time"

var mithril = Cloud{Name: "mithril", Display: "Mithril", Prices: &Prices{Refresh: 7 * time.Hour}}
