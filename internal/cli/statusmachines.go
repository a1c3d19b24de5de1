package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/table"
)

// machinesPatience is how long sky status waits for the machines of pools; what does not
// answer by then is left open.
const machinesPatience = 3 * time.Second

func onSSH(infra string) bool {
	name, _, _ := strings.Cut(strings.ToLower(infra), "/")
	return name == facts.SSH
}

// ownMachines asks what is free of each pool. Only what is known soon is shown: it is
// an addition to the overview, and no reason for it to fail.
func (a *app) ownMachines(ctx context.Context, c *sky.Client) []api.SSHPoolStatus {
	ctx, cancel := context.WithTimeout(ctx, machinesPatience)
	defer cancel()
	pools, err := c.SSHPools(ctx)
	if err != nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(pools))
	out := make([]api.SSHPoolStatus, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			s, err := c.SSHPoolStatus(ctx, name)
			if err != nil {
				s = api.SSHPoolStatus{PoolName: name, Status: "Unknown"}
			}
			out[i] = s
		})
	}
	wg.Wait()
	return out
}

func machinesTable(pools []api.SSHPoolStatus) *table.Table {
	tab := table.New("POOL", "STATUS", "FREE").Whole("POOL", "STATUS").Prose("FREE")
	for _, p := range pools {
		tab.Add(p.PoolName, p.Status, format.OrDash(p.Free))
	}
	return tab
}
