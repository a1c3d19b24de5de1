package facts

import "time"

var seeweb = Cloud{Name: "seeweb", Display: "Seeweb", Prices: &Prices{Refresh: 8 * time.Hour}}
