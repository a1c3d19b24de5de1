package runpod

import (
	"context"
	"net/url"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// mount is a network volume in a pod.
type mount struct {
	Volume string `json:"volumeId"`
	Path   string `json:"path"`
}

// disk is a network volume as the API has it.
type disk struct {
	ID         string `json:"id,omitempty"`
	Name       string `json:"name"`
	SizeGB     int    `json:"size"`
	DataCenter string `json:"dataCenter"`
}

// volumes are the calls about network volumes.
func (p *Provider) volumes() vm.VolumeCalls {
	change := func(ctx context.Context, method, path string, body any) error {
		c, _, err := p.API()
		if err == nil {
			_, err = rest.Do[any](ctx, c, method, "/network-volumes"+path, body)
		}
		return err
	}
	return vm.VolumeCalls{
		List: func(ctx context.Context) ([]vm.Disk, error) {
			c, _, err := p.API()
			if err != nil {
				return nil, err
			}
			all, err := list[disk](ctx, c, "network-volumes", "networkVolumes")
			if err != nil || len(all) == 0 {
				return nil, err
			}
			pods, err := list[pod](ctx, c, "pods", "pods")
			disks := make([]vm.Disk, len(all))
			for i, v := range all {
				disks[i] = vm.Disk{ID: v.ID, Name: v.Name, Zone: v.DataCenter, SizeGB: v.SizeGB}
				for _, p := range pods {
					if p.Status != "TERMINATED" && slices.ContainsFunc(p.Mounts.Network, func(m mount) bool { return m.Volume == v.ID }) {
						disks[i].By = append(disks[i].By, p.Name)
					}
				}
			}
			return disks, err
		},
		Make: func(ctx context.Context, d vm.Disk) error {
			return change(ctx, "POST", "", disk{Name: d.Name, SizeGB: d.SizeGB, DataCenter: d.Zone})
		},
		Delete: func(ctx context.Context, d vm.Disk) error {
			return change(ctx, "DELETE", "/"+url.PathEscape(d.ID), nil)
		},
	}
}
