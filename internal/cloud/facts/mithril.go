package facts

import (
	"time"

	"github.com/skypilot-go/sky/internal/schema"
)

var mithril = Cloud{
	Name: "mithril", Display: "Mithril", Regions: "offered now",
	Prices: &Prices{Refresh: 7 * time.Hour, AnySize: true},
	Lacks:  []Feature{Ports, Image, DiskTier, NetTier, LocalDisk},
	Settings: func() *schema.Spec {
		return schema.Section("Mithril, which sells machines by auction.",
			schema.New("limit_price", schema.Number("The most that a machine may cost, in $ per hour: what is bid. Absent: half more than its price when it was planned. Never more than max_hourly_cost of the task.").AtLeast(0).ForTasks()),
			identity(localCredentials))
	},
	TaskExample: "{limit_price: 20}",
}
