package facts

import "time"

var verda = Cloud{Name: "verda", Display: "Verda", Prices: &Prices{Refresh: 7 * time.Hour}}
