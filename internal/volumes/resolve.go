package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Use is what a task wants of volumes: which, and where they make it run.
type Use struct {
	mounts []mount
	// Where all of them are; zero: there are none.
	place  cloud.Place
	placed string // the volume that says so
}

// mount is an entry of a task's volumes.
type mount struct {
	path, subPath string
	volume        *state.Volume // nil: it is made with the cluster,
	own           cloud.Volume  // like this
}

func (m mount) name() string {
	if m.volume != nil {
		return "Volume " + m.volume.Name
	}
	return "The volume at " + m.path
}

// accessMode is how often and where the volume may be mounted at once; "": as
// often as anybody likes.
func (m mount) accessMode() string {
	is := m.own
	if m.volume != nil {
		is = m.volume.Is
	}
	if is.Type == cloud.VolumeHostPath {
		return ""
	}
	return cmp.Or(is.AccessMode, cloud.ReadWriteOnce)
}

// Resolve finds the volumes of a task for a new cluster, and refuses what cannot
// be mounted there. The cluster has a name if it is being launched.
func (m *Manager) Resolve(ctx context.Context, call cluster.Call, c *config.Config, t *task.Task, name string) (*Use, error) {
	u := &Use{}
	var look []*state.Volume
	for _, path := range slices.Sorted(maps.Keys(t.Volumes)) {
		asked := t.Volumes[path]
		if asked.Name == "" {
			own, err := m.ownVolume(path, asked)
			if err != nil {
				return nil, err
			}
			u.mounts = append(u.mounts, mount{path: path, subPath: asked.SubPath, own: own})
			continue
		}
		v, err := m.get(ctx, call.Scope, asked.Name)
		if err != nil {
			return nil, err
		}
		if err := mountable(v, c.ActiveWorkspace()); err != nil {
			return nil, err
		}
		u.mounts = append(u.mounts, mount{path: path, subPath: asked.SubPath, volume: v})
		look = append(look, v)
	}
	if err := m.awaitReady(ctx, call, c, look); err != nil {
		return nil, err
	}
	for i := range u.mounts {
		if err := u.take(&u.mounts[i], t); err != nil {
			return nil, err
		}
	}
	return u, m.free(ctx, u, name)
}

// How long a launch waits for volumes that are not ready, such as those that were
// made a moment ago, and how often it looks.
const (
	usualPatience = 30 * time.Second
	readyPause    = time.Second
)

// awaitReady looks at volumes until all are ready, for a while. What the clouds
// say then counts; one that cannot be asked is no reason to fail: the launch finds
// out.
func (m *Manager) awaitReady(ctx context.Context, call cluster.Call, c *config.Config, list []*state.Volume) error {
	for until := time.Now().Add(m.patience); ; {
		if err := m.look(ctx, c, list); err != nil {
			return err
		}
		late := slices.IndexFunc(list, func(v *state.Volume) bool { return v.Seen.Exists && !v.Seen.Ready && v.Seen.Unknown == "" })
		if late < 0 || time.Now().After(until) {
			return nil
		}
		call.Out.Spin(fmt.Sprintf("Waiting until volume %s is ready: %s", list[late].Name, list[late].Seen.Reason))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(readyPause):
		}
	}
}

// ownVolume is a volume that is made with a cluster.
func (m *Manager) ownVolume(path string, asked task.VolumeMount) (cloud.Volume, error) {
	v, _, err := m.check(task.Volume{Name: "own", Type: cmp.Or(asked.Type, task.VolumeClaim), Size: asked.Size, Labels: asked.Labels, Config: asked.Config})
	if e, ok := errors.AsType[*api.Error](err); ok {
		e.Message = "volumes." + path + ": " + e.Message
	}
	v.Name = ""
	return v, err
}

// mountable refuses volumes that nothing in a workspace can mount.
func mountable(v *state.Volume, workspace string) error {
	at := cmp.Or(v.Workspace, state.DefaultWorkspace)
	switch {
	case v.ClusterHash != "":
		return invalid("Volume %q goes with its cluster: no other can mount it.", v.Name)
	case at != cmp.Or(workspace, state.DefaultWorkspace):
		e := invalid("Volume %q is in the workspace %s, and the cluster would be in %s.", v.Name, at, workspace)
		e.Hint = fmt.Sprintf("Launch in that workspace: sky -w %s launch …, or make a volume in this one.", at)
		return e
	case v.Stage == state.VolumeDeleting:
		return notReady(v, "it is being deleted", "Choose another volume, or make a new one when it is gone: sky volumes apply")
	case v.Stage == state.VolumeMaking:
		return notReady(v, because("it is being made", v.Problem), "See how far that is with: sky volumes ls -r")
	}
	return nil
}

func notReady(v *state.Volume, why, hint string) error {
	return &api.Error{Type: api.ErrVolumeNotReady, Message: fmt.Sprintf("Volume %q cannot be mounted: %s.", v.Name, why), Hint: hint}
}

// take checks one volume against the task and the volumes before it.
func (u *Use) take(m *mount, t *task.Task) error {
	if v := m.volume; v != nil && !v.Seen.At.IsZero() && v.Seen.Unknown == "" {
		switch {
		case !v.Seen.Exists:
			return notReady(v, because("it is not there any more ("+told(v)+")", v.Seen.Reason),
				fmt.Sprintf("Somebody deleted it by other means. Forget it with: sky volumes delete %s", v.Name))
		case !v.Seen.Ready:
			return notReady(v, cmp.Or(v.Seen.Reason, "it is not ready"), "See its state with: sky volumes ls -r -v")
		}
	}
	if mode := m.accessMode(); t.NumNodes > 1 && (mode == cloud.ReadWriteOnce || mode == cloud.ReadWriteOncePod) {
		e := invalid("%s with access mode %s is not supported for multi-node tasks: one node at a time can mount it, and the task wants %d.", m.name(), mode, t.NumNodes)
		e.Hint = "Use a volume with the access mode ReadWriteMany (config: {access_mode: ReadWriteMany}), or one node."
		return e
	}
	at := m.own.Place
	if m.volume != nil {
		at = m.volume.Is.Place
	}
	merged, ok := meet(u.place, at)
	if !ok {
		return &api.Error{Type: api.ErrVolumeTopology,
			Message: fmt.Sprintf("%s is in %v, and %s in %v: no machine can mount both.", m.name(), at, lower(u.placed), u.place)}
	}
	u.place = merged
	if u.placed == "" || at.Region != "" {
		u.placed = m.name()
	}
	return nil
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// meet is where both places are; false if nowhere.
func meet(a, b cloud.Place) (cloud.Place, bool) {
	ok := true
	pick := func(a, b string) string {
		if a != "" && b != "" && !strings.EqualFold(a, b) {
			ok = false
		}
		return cmp.Or(a, b)
	}
	out := cloud.Place{Cloud: pick(a.Cloud, b.Cloud), Region: pick(a.Region, b.Region), Zone: pick(a.Zone, b.Zone)}
	return out, ok
}

// free refuses volumes that one pod at a time can mount while another cluster
// holds them.
func (m *Manager) free(ctx context.Context, u *Use, name string) error {
	for _, mt := range u.mounts {
		if mt.volume == nil || mt.accessMode() != cloud.ReadWriteOncePod {
			continue
		}
		by, err := m.Store.Volumes().Holders(ctx, mt.volume.Name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(by, func(h state.VolumeHolder) bool { return h.Cluster == name }) {
			continue // an earlier life of the same launch
		}
		if using := users(mt.volume, by); len(using) > 0 {
			return notReady(mt.volume, "one pod at a time can mount it (ReadWriteOncePod), and it is in use by "+strings.Join(using, ", "),
				"Wait until that has ended, or use a volume with another access mode.")
		}
	}
	return nil
}

// Bind makes a task run where its volumes are. Requests for elsewhere conflict
// with volumes that exist; with volumes that are made with the cluster they are
// left out, which the result tells.
func (u *Use) Bind(t *task.Task) (leftOut []string, err error) {
	if u.place.Cloud == "" {
		return nil, nil
	}
	var keep []task.Resources
	for _, r := range t.Resources {
		where := cloud.Place{Cloud: r.Cloud, Region: r.Region, Zone: r.Zone}
		at, ok := meet(where, u.place)
		ok = ok && (len(r.Regions) == 0 || u.place.Region == "" || slices.Contains(r.Regions, u.place.Region)) &&
			(len(r.Zones) == 0 || u.place.Zone == "" || slices.Contains(r.Zones, u.place.Zone))
		switch {
		case ok:
			r.Cloud, r.Region, r.Zone = at.Cloud, at.Region, at.Zone
			if u.place.Region != "" {
				r.Regions = nil
			}
			if u.place.Zone != "" {
				r.Zones = nil
			}
			keep = append(keep, r)
		case u.exist():
			return nil, &api.Error{Type: api.ErrVolumeTopology,
				Message: fmt.Sprintf("%s is in %v, and the task asks for %v: machines there cannot mount it.", u.placed, u.place, wanted(r)),
				Hint:    "Leave infra out of the task's resources: it follows from the volumes. Or use a volume that is there."}
		default:
			leftOut = append(leftOut, fmt.Sprintf("%v: volumes that are made with the cluster need %s", wanted(r), task.CloudDisplay(u.place.Cloud)))
		}
	}
	if len(keep) == 0 {
		return nil, &api.Error{Type: api.ErrVolumeTopology,
			Message: fmt.Sprintf("The task's volumes are made with its cluster, which %s alone can do; the task asks for %s.", task.CloudDisplay(u.place.Cloud), strings.Join(places(t.Resources), ", ")),
			Hint:    "Leave infra out of the task's resources, or say infra: k8s."}
	}
	t.Resources = keep
	return leftOut, nil
}

func wanted(r task.Resources) string {
	s := cloud.Place{Cloud: r.Cloud, Region: r.Region, Zone: r.Zone}.String()
	for _, several := range [][]string{r.Regions, r.Zones} {
		if len(several) > 0 {
			s += " (" + strings.Join(several, ", ") + ")"
		}
	}
	return s
}

func places(list []task.Resources) []string {
	var out []string
	for _, r := range list {
		out = append(out, wanted(r))
	}
	return slices.Compact(out)
}

// exist reports whether one of the volumes is there already.
func (u *Use) exist() bool {
	return slices.ContainsFunc(u.mounts, func(m mount) bool { return m.volume != nil })
}

// Hold are the volumes as a new cluster's record is to hold them.
func (u *Use) Hold(c *state.Cluster) []state.NewVolumeMount {
	if u == nil {
		return nil
	}
	var out []state.NewVolumeMount
	for _, m := range u.mounts {
		n := state.NewVolumeMount{Path: m.path, SubPath: m.subPath}
		if m.volume != nil {
			n.Name = m.volume.Name
		} else {
			hash := uuid.NewString()
			n.Own = &state.Volume{
				Name: c.NameOnCloud + "-" + hash[:8], Hash: hash, Stage: state.VolumeThere,
				UserHash: c.UserHash, UserName: c.UserName, Workspace: c.Workspace, Asked: m.own, Is: m.own,
				LaunchedAt: c.LaunchedAt, LastAttachedAt: c.LaunchedAt, LastUse: c.LastUse,
			}
			n.Own.Is.Name = n.Own.Name
		}
		out = append(out, n)
	}
	return out
}

// NotThere is the error of a volume that began to go while a cluster was about to
// hold it; other errors are returned as they are.
func NotThere(err error) error {
	if e, ok := errors.AsType[*state.VolumeNotThereError](err); ok {
		return &api.Error{Type: api.ErrVolumeNotReady, Err: err, Message: fmt.Sprintf("Volume %q was deleted just now.", e.Volume), Hint: "List volumes with: sky volumes ls"}
	}
	return err
}

// Mounted is what a cluster's nodes mount at a place, where an attempt has the
// cluster by that id; nil if it holds nothing.
func (m *Manager) Mounted(ctx context.Context, c *state.Cluster, settings func(cloud.Place) map[string]any) (func(cloud.Place, cloud.ClusterID) []cloud.VolumeMount, error) {
	held, err := m.Store.Volumes().Mounts(ctx, c.Hash)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	return func(at cloud.Place, id cloud.ClusterID) []cloud.VolumeMount {
		var out []cloud.VolumeMount
		for _, h := range held {
			v := h.Volume.Is
			if h.Volume.ClusterHash != "" {
				v = own(h.Volume, at, id, nil)
			}
			v.Installation, v.Settings = m.Installation, settings(at)
			out = append(out, cloud.VolumeMount{Path: h.Path, SubPath: h.SubPath, Volume: v})
		}
		return out
	}, nil
}

// Lacks says which volumes of a task a cluster that exists does not hold, and so
// will not get; "" if none.
func (m *Manager) Lacks(ctx context.Context, c *state.Cluster, t *task.Task) (string, error) {
	if len(t.Volumes) == 0 {
		return "", nil
	}
	held, err := m.Store.Volumes().Mounts(ctx, c.Hash)
	if err != nil {
		return "", err
	}
	has := map[string]state.VolumeMount{}
	for _, h := range held {
		has[h.Path] = h
	}
	var lacks []string
	for _, path := range slices.Sorted(maps.Keys(t.Volumes)) {
		want := t.Volumes[path]
		h, ok := has[path]
		same := ok && h.SubPath == want.SubPath && (want.Name == "" && h.Volume.ClusterHash != "" || want.Name != "" && h.Volume.Name == want.Name)
		switch {
		case same:
		case want.Name == "":
			lacks = append(lacks, path+" (a new volume)")
		default:
			lacks = append(lacks, path+" ("+want.Name+")")
		}
	}
	return strings.Join(lacks, ", "), nil
}
