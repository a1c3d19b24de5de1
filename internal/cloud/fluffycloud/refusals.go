package fluffycloud

import (
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// refusals are FluffyCloud's codes in sky's words. The account's role is the same
// everywhere.
var refusals = vm.Refusals{
	Cloud: Name, DisplayName: "FluffyCloud", Fix: fix,
	Codes: map[string]vm.Meaning{
		string(fluffyapi.Unauthorized): vm.BadCredentials, string(fluffyapi.Forbidden): vm.Forbidden,
		string(fluffyapi.NoCapacity): vm.Full, string(fluffyapi.QuotaExceeded): vm.OverQuota, string(fluffyapi.Invalid): vm.Invalid,
		string(fluffyapi.Throttled): vm.Throttled, string(fluffyapi.NotFound): vm.NotThere, string(fluffyapi.InUse): vm.InUse,
		string(fluffyapi.NameTaken): vm.Moved, string(fluffyapi.WrongState): vm.Moved,
	},
}

func availability(free, nodes int, at cloud.Place, now time.Time) cloud.Availability {
	if free >= nodes {
		return cloud.Availability{Verdict: cloud.AvailableNow, At: now}
	}
	return cloud.Availability{Verdict: cloud.AvailableNone, Reason: fmt.Sprintf("%v has room for %d of %d", at, free, nodes), At: now}
}
