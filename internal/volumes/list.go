package volumes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

// List is the volumes of workspaces that the caller sees. With refresh their
// clouds are asked about them first; what one does not answer is as it was last
// seen, and says so.
func (m *Manager) List(ctx context.Context, call cluster.Call, b api.VolumesListBody) ([]api.Volume, error) {
	list, err := m.Store.Volumes().List(ctx, state.VolumeFilter{Scope: call.Scope})
	if err != nil {
		return nil, err
	}
	if b.Refresh {
		call.Out.Spin("Looking at volumes")
		if err := m.look(ctx, m.configOf(call), list); err != nil {
			return nil, err
		}
	}
	by, err := m.Store.Volumes().Holders(ctx)
	if err != nil {
		return nil, err
	}
	owners, err := m.owners(ctx, list)
	if err != nil {
		return nil, err
	}
	holders := map[string][]state.VolumeHolder{}
	for _, h := range by {
		holders[h.Volume] = append(holders[h.Volume], h)
	}
	out := []api.Volume{}
	for _, v := range list {
		if v.ClusterHash != "" && owners[v.ClusterHash] == nil {
			continue // gone with its cluster meanwhile
		}
		out = append(out, record(v, owners[v.ClusterHash], holders[v.Name]))
	}
	return out, nil
}

// record is a volume as clients see it. owner is the cluster with which it goes,
// if it does.
func record(v *state.Volume, owner *state.Cluster, by []state.VolumeHolder) api.Volume {
	is := v.Is
	if owner != nil {
		at := owner.Offer.Place
		is.Place, is.NameOnCloud = at, owner.NameOnCloud+"-"+v.Hash[:8]
	}
	status, problem := judge(v, len(by) > 0)
	out := api.Volume{
		Name: v.Name, Type: is.Type, LaunchedAt: v.LaunchedAt.Unix(), Cloud: is.Place.Cloud,
		Region: optional(is.Place.Region), Zone: optional(is.Place.Zone), Config: map[string]any{}, NameOnCloud: is.NameOnCloud,
		UserHash: v.UserHash, UserName: v.UserName, Workspace: cmp.Or(v.Workspace, state.DefaultWorkspace),
		LastAttachedAt: moment(v.LastAttachedAt), LastUse: optional(v.LastUse), Status: &status,
		UsedByPods: []string{}, UsedByClusters: []string{}, Ephemeral: v.ClusterHash != "",
		FetchFailed: v.Seen.Unknown != "", ErrorMessage: optional(problem), CreationYAML: optional(v.CreationYAML),
	}
	out.UsedByPods = append(out.UsedByPods, v.Seen.Pods...)
	for _, h := range by {
		out.UsedByClusters = append(out.UsedByClusters, h.Cluster)
	}
	if is.SizeGB > 0 {
		out.Size = optional(strconv.Itoa(is.SizeGB))
	}
	for key, value := range map[string]string{"storage_class_name": is.Class, "access_mode": is.AccessMode, "namespace": is.Namespace, "host_path": is.HostPath} {
		if value != "" {
			out.Config[key] = value
		}
	}
	if is.HostPath != "" {
		out.Config["cleanup_on_deletion"] = !is.KeepContent
	}
	if len(is.Labels) > 0 {
		out.Config["labels"] = maps.Clone(is.Labels)
	}
	if is.Existing {
		out.Config["use_existing"] = true
	}
	return out
}

// judge is a volume's status, and what is wrong with it.
func judge(v *state.Volume, held bool) (status, problem string) {
	unknown := ""
	if v.Seen.Unknown != "" {
		unknown = "could not be asked for: " + v.Seen.Unknown
		if !v.Seen.At.IsZero() {
			unknown = fmt.Sprintf("as seen %s ago; since then it %s", time.Since(v.Seen.At).Round(time.Second), unknown)
		}
	}
	switch {
	case v.Stage == state.VolumeMaking:
		return api.VolumeNotReady, because("being made", v.Problem)
	case v.Stage == state.VolumeDeleting:
		return api.VolumeNotReady, because("being deleted", v.Problem)
	case !v.Seen.At.IsZero() && !v.Seen.Exists:
		return api.VolumeNotReady, because("not there any more", v.Seen.Reason)
	case !v.Seen.At.IsZero() && !v.Seen.Ready:
		return api.VolumeNotReady, cmp.Or(v.Seen.Reason, "not ready")
	case held || len(v.Seen.Pods) > 0:
		return api.VolumeInUse, unknown
	}
	return api.VolumeReady, unknown
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func moment(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.Unix())
}

// users are the pods and clusters that use a volume, in words.
func users(v *state.Volume, by []state.VolumeHolder) []string {
	var out []string
	for _, h := range by {
		out = append(out, "cluster "+h.Cluster)
	}
	for _, p := range v.Seen.Pods {
		out = append(out, "pod "+p)
	}
	return slices.Compact(out)
}
