package gcp

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/internal/cloud"
)

// endScript is run by the guest environment when a machine goes down. If its agent said
// that the machine ends (which a reboot, a stop, a preemption and the maintenance of its
// host do not), the machine deletes itself, with the token of its service account.
//
// https://cloud.google.com/compute/docs/shutdownscript
const (
	endScript      = endBegins + `"https://compute.googleapis.com/compute/v1/projects/$(md project/project-id)/zones/${zone##*/}/instances/$(md instance/name)"` + "\n"
	tpuEndScript   = endBegins + `"https://tpu.googleapis.com/v2/projects/$(md project/project-id)/locations/${zone##*/}/nodes/$(md instance/attributes/sky-name)"` + "\n"
	queueEndScript = endBegins + `"https://tpu.googleapis.com/v2/projects/$(md project/project-id)/locations/${zone##*/}/queuedResources/$(md instance/attributes/sky-name)-q?force=true"` + "\n"
)

const endBegins = `#!/bin/sh
[ -e ` + cloud.EndMark + ` ] || exit 0
md() { curl -sf -m 10 -H 'Metadata-Flavor: Google' "http://metadata.google.internal/computeMetadata/v1/$1"; }
token=$(md instance/service-accounts/default/token | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
zone=$(md instance/zone)
curl -sf -m 20 --retry 3 -X DELETE -H "Authorization: Bearer $token" `

// WhenOff finds out whether the machines can delete themselves, as they do when their
// agents end them; one that stops is stopped, whatever was said before.
func (p *Provider) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	if id.Name == "" || !ends {
		return nil
	}
	machines, err := p.Machines(ctx, id)
	if err != nil {
		return err
	}
	for _, m := range machines {
		if detail := m.Detail.(about); !detail.identity && detail.network != "" {
			return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("%s has no service account and could not delete itself; launch it with gcp.remote_identity: SERVICE_ACCOUNT, or use autostop without --down", m.ID)}
		}
	}
	return nil
}
