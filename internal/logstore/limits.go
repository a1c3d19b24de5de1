package logstore

import (
	"cmp"
	"time"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// CountAgain is how long a server trusts its count of the logs in a database, to
// which others write, too.
const CountAgain = 5 * time.Minute

// StoredLimits are the limits of logs in a database, whose disk is not seen from here:
// where none are set, 10 GiB of one user and 100 GiB of all.
func StoredLimits(l diskspace.Limits) diskspace.Limits {
	l.User, l.All = cmp.Or(l.User, 10<<30), cmp.Or(l.All, 100<<30)
	return l
}
