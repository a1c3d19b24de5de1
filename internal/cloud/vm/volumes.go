package vm

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// Disk is a volume as a cloud lists it. Names need not be unique there.
type Disk struct {
	ID, Name, Zone string
	SizeGB         int
	By             []string // the names of machines that mount it
}

// VolumeCalls are a cloud's calls about volumes.
type VolumeCalls struct {
	List   func(ctx context.Context) ([]Disk, error)
	Make   func(ctx context.Context, d Disk) error
	Delete func(ctx context.Context, d Disk) error
}

// VolumeOptions are what volumes of a cloud are.
type VolumeOptions struct {
	Type            string // in the words of volume files
	LeastGB, MostGB int
	Region          func(zone string) string
	Calls           VolumeCalls
}

// Volumes are those of a cloud that keeps them in its zones, for its provider to embed: with
// them it is a [cloud.Volumer]. They are known by names that belong to one incarnation each
// (Volume.NameOnCloud), and a machine mounts one.
type Volumes struct {
	p *Provider
	o VolumeOptions
}

// NewVolumes returns the volumes of a provider.
func NewVolumes(p *Provider, o VolumeOptions) *Volumes { return &Volumes{p, o} }

const mostVolumeName = 63

// CheckVolume refuses what can never be a volume there.
func (vs *Volumes) CheckVolume(v cloud.Volume) error {
	why := ""
	switch name := vs.p.o.DisplayName; {
	case v.Type != vs.o.Type || v.Place.Cloud != "" && v.Place.Cloud != vs.p.o.Cloud:
		why = fmt.Sprintf("volumes of %s are of the type %s", name, vs.o.Type)
	case v.Place.Zone == "":
		why = fmt.Sprintf("a volume of %s is in one place: name that as the zone (infra: %s/REGION/ZONE)", name, vs.p.o.Cloud)
	case v.Place.Region != "" && !strings.EqualFold(v.Place.Region, vs.o.Region(v.Place.Zone)):
		why = fmt.Sprintf("%s is in %s, not in %s", v.Place.Zone, vs.o.Region(v.Place.Zone), v.Place.Region)
	case v.AccessMode != "" && !slices.Contains(task.AccessModes, v.AccessMode):
		why = fmt.Sprintf("there is no access mode %q; there are %s", v.AccessMode, strings.Join(task.AccessModes, ", "))
	case !v.Existing && v.NameOnCloud != "" && (len(v.NameOnCloud) > mostVolumeName || !PlainName(v.NameOnCloud)):
		why = fmt.Sprintf("the name of a new volume has up to %d small letters, digits and dashes, and this one is %.70q", mostVolumeName, v.NameOnCloud)
	case v.Class != "" || v.Namespace != "" || v.HostPath != "":
		why = fmt.Sprintf("volumes of %s have no storage class, no namespace and no host_path", name)
	case len(v.Labels) > 0:
		why = fmt.Sprintf("volumes of %s have no labels", name)
	case v.Cluster != cloud.ClusterID{}:
		why = fmt.Sprintf("volumes of %s are not made with a cluster; make one with: sky volumes apply", name)
	case v.SizeGB > vs.o.MostGB || v.SizeGB < vs.o.LeastGB && !(v.Existing && v.SizeGB == 0):
		why = fmt.Sprintf("a volume of %s has %d to %d GB", name, vs.o.LeastGB, vs.o.MostGB)
	default:
		return nil
	}
	return vs.invalid(v, errors.New(why))
}

func (vs *Volumes) invalid(v cloud.Volume, err error) error {
	return &cloud.InvalidError{Place: cloud.Place{Cloud: vs.p.o.Cloud, Region: v.Place.Region, Zone: v.Place.Zone}, Err: err}
}

// system are folders without which a container does not run.
var system = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}

// CheckMounts refuses what machines cannot mount, for Options.Valid.
func (vs *Volumes) CheckMounts(mounts []cloud.VolumeMount) error {
	if len(mounts) > 1 {
		return fmt.Errorf("a machine of %s mounts one volume, and the task has %d", vs.p.o.DisplayName, len(mounts))
	}
	for _, m := range mounts {
		if at := m.Path; !path.IsAbs(at) || path.Clean(at) == "/" || strings.Contains(at, ":") || slices.Contains(strings.Split(at, "/"), "..") || slices.Contains(system, path.Clean(at)) {
			return fmt.Errorf("a volume of %s is mounted at an absolute path such as /workspace, not at %q", vs.p.o.DisplayName, at)
		}
		if m.SubPath != "" {
			return fmt.Errorf("volumes of %s are mounted as a whole: leave sub_path out", vs.p.o.DisplayName)
		}
		if err := vs.CheckVolume(m.Volume); err != nil {
			return err
		}
	}
	return nil
}

// Find is the volume, which has to be there, for a driver's Create. offer is where the
// machine is to be.
func (vs *Volumes) Find(ctx context.Context, v cloud.Volume, offer cloud.Place) (Disk, error) {
	found, err := vs.named(ctx, v)
	switch {
	case err != nil:
		return Disk{}, err
	case len(found) == 0:
		return Disk{}, vs.invalid(v, fmt.Errorf("there is no volume %s in %s any more", v.NameOnCloud, v.Place.Zone))
	case offer.Zone != v.Place.Zone:
		return Disk{}, vs.invalid(v, fmt.Errorf("the volume %s is in %s, and the machine is to be in %s", v.Name, v.Place.Zone, offer.Zone))
	}
	return found[0], nil
}

// named are the volumes of the name in the zone: several, if the answer that one was made got
// lost, and lists showed it late.
func (vs *Volumes) named(ctx context.Context, v cloud.Volume) ([]Disk, error) {
	all, err := vs.o.Calls.List(ctx)
	return slices.DeleteFunc(all, func(d Disk) bool { return d.Name != v.NameOnCloud || d.Zone != v.Place.Zone }), err
}

// alone does something about a volume while no other call of this process does.
func (vs *Volumes) alone(ctx context.Context, v cloud.Volume, do func() error) error {
	if err := vs.CheckVolume(v); err != nil {
		return err
	}
	done, err := vs.p.turns.Lock(ctx, cloud.ClusterID{Installation: "\x00volumes", Name: v.NameOnCloud})
	if err != nil {
		return err
	}
	defer done()
	return vs.p.refusal(ctx, cloud.Place{Cloud: vs.p.o.Cloud, Region: vs.o.Region(v.Place.Zone), Zone: v.Place.Zone}, do())
}

// MakeVolume makes the volume, or takes the one that exists.
func (vs *Volumes) MakeVolume(ctx context.Context, v cloud.Volume) (cloud.Volume, error) {
	err := vs.alone(ctx, v, func() error {
		found, err := vs.named(ctx, v)
		switch {
		case err != nil:
			return err
		case v.Existing && len(found) != 1:
			return vs.invalid(v, fmt.Errorf("there are %d volumes %s in %s, and one is to be taken", len(found), v.NameOnCloud, v.Place.Zone))
		case len(found) == 0:
			found = []Disk{{Name: v.NameOnCloud, Zone: v.Place.Zone, SizeGB: v.SizeGB}}
			err = cloud.Settled(ctx, func(ctx context.Context) error { return vs.o.Calls.Make(ctx, found[0]) })
		case found[0].SizeGB < v.SizeGB:
			return vs.invalid(v, fmt.Errorf("the volume %s has %d GB, not %d", v.NameOnCloud, found[0].SizeGB, v.SizeGB))
		}
		v.SizeGB = found[0].SizeGB
		return err
	})
	if err != nil {
		return v, err
	}
	v.Place.Cloud, v.Place.Region = vs.p.o.Cloud, vs.o.Region(v.Place.Zone)
	if v.AccessMode == "" {
		v.AccessMode = cloud.ReadWriteOnce
	}
	return v, nil
}

// DeleteVolume removes what has the volume's name, unless something mounts it.
func (vs *Volumes) DeleteVolume(ctx context.Context, v cloud.Volume) error {
	return vs.alone(ctx, v, func() error {
		found, err := vs.named(ctx, v)
		if err != nil {
			return err
		}
		for _, d := range found {
			if len(d.By) > 0 {
				return &cloud.InUseError{What: "the volume " + v.NameOnCloud, By: d.By}
			}
		}
		if v.Existing {
			return nil
		}
		left, err := Remove(vs.p.d, found, func(d Disk) string { return d.Name }, func(d Disk) error {
			return cloud.Settled(ctx, func(ctx context.Context) error { return vs.o.Calls.Delete(ctx, d) })
		})
		if err == nil && len(left) > 0 {
			err = &cloud.InUseError{What: "the volume " + v.NameOnCloud, By: []string{"something that " + vs.p.o.DisplayName + " does not name"}}
		}
		return err
	})
}

// LookAtVolumes reads the list of all volumes.
func (vs *Volumes) LookAtVolumes(ctx context.Context, all []cloud.Volume) ([]cloud.VolumeState, error) {
	if len(all) == 0 {
		return nil, nil
	}
	have, err := vs.o.Calls.List(ctx)
	if err != nil {
		return nil, vs.p.refusal(ctx, vs.p.at(""), err)
	}
	out := make([]cloud.VolumeState, len(all))
	for i, v := range all {
		out[i] = cloud.VolumeState{Asked: time.Now(), Unknown: vs.CheckVolume(v)}
		n := slices.IndexFunc(have, func(d Disk) bool { return d.Name == v.NameOnCloud && d.Zone == v.Place.Zone })
		switch {
		case out[i].Unknown != nil:
		case n < 0:
			out[i].Reason = vs.p.o.DisplayName + " has no volume of that name any more"
		default:
			out[i].Exists, out[i].Ready, out[i].SizeGB, out[i].Pods = true, true, have[n].SizeGB, have[n].By
		}
	}
	return out, nil
}
