package fetch

import (
	"context"
	"fmt"
	"net/http"

	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vcenter"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// VSphere lists the sizes of VMs that the hosts of the user's own vCenters could hold if they
// were empty. They cost nothing.
type VSphere struct {
	Home      string            // with the credentials; "": the user's
	Transport http.RoundTripper // nil: one of its own
}

// Rows asks each vCenter of the file of credentials. A list that lacks one would say that
// nothing is there, so that all have to answer.
func (v VSphere) Rows(ctx context.Context) ([]Row, error) {
	file := vcenter.Credentials(v.Home)
	accounts, _, err := vcenter.Accounts(file)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, file.Fix)
	}
	endpoint, err := vm.Endpoint(vcenter.Name, "")
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, a := range accounts {
		c := vcenter.New(a, rest.Options{Endpoint: endpoint, Transport: v.Transport})
		in, err := c.Look(ctx)
		c.Logout(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		for _, z := range in.Zones {
			for _, s := range z.Sizes(in.Version) {
				row := Row{InstanceType: s.String(), CPUs: float64(s.CPUs), MemoryGiB: float64(s.GiB), Price: 0, Spot: none, Region: a.Name, Zone: z.Name}
				if s.GPUs > 0 {
					row.Accelerator, row.Count, row.DeviceMiB = s.GPU, float64(s.GPUs), deviceMiB(s.GPU)
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

var vsphereSource = Source{vcenter.Name, []string{"~/" + vcenter.Path}, func(func(string) string) Fetcher { return VSphere{} }}
