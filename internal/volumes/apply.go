package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Validate says what is wrong with a volume, as far as that shows without asking
// its cloud.
func (m *Manager) Validate(b api.VolumeValidateBody) error {
	v := task.Volume{Labels: b.Labels, Config: b.Config, UseExisting: b.UseExisting != nil && *b.UseExisting}
	for to, from := range map[*string]*string{&v.Name: b.Name, &v.Type: b.VolumeType, &v.Infra: b.Infra} {
		if from != nil {
			*to = *from
		}
	}
	if b.Size != nil {
		v.Size = b.Size.String()
	}
	_, _, err := m.check(v)
	return err
}

// check is what a description of a volume comes down to, if it can work at all.
func (m *Manager) check(v task.Volume) (cloud.Volume, cloud.Volumer, error) {
	d, err := v.Check()
	if err != nil {
		return cloud.Volume{}, nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	p, err := m.volumer(d.Place.Cloud)
	if err != nil {
		return cloud.Volume{}, nil, err
	}
	out := cloud.Volume{
		Name: v.Name, Type: v.Type, Place: cloud.Place{Cloud: d.Place.Cloud, Region: d.Place.Region, Zone: d.Place.Zone},
		SizeGB: d.GB, AccessMode: d.AccessMode, Class: d.StorageClass, Namespace: d.Namespace,
		HostPath: d.HostPath, KeepContent: v.Type == task.VolumeHostPath && !d.CleanupOnDeletion,
		Existing: v.UseExisting, Labels: v.Labels,
	}
	if err := p.CheckVolume(out); err != nil {
		return out, nil, &api.Error{Type: api.ErrValue, Message: words(err), Err: err}
	}
	return out, p, nil
}

// Apply makes a volume, or takes one that exists. One of that name that is as it
// is asked for is success.
func (m *Manager) Apply(ctx context.Context, call cluster.Call, b api.VolumeApplyBody) error {
	asked := task.Volume{
		Name: b.Name, Type: b.VolumeType, Infra: infraOf(b), Labels: b.Labels, Config: b.Config,
		UseExisting: b.UseExisting != nil && *b.UseExisting,
	}
	if b.Size != nil {
		asked.Size = b.Size.String()
	}
	want, p, err := m.check(asked)
	if err != nil {
		return err
	}
	c := m.configOf(call)
	workspace := c.ActiveWorkspace()
	if ok, why := c.CloudUseFor(workspace, want.Place.Cloud, config.Compute); !ok {
		return &api.Error{Type: api.ErrNoCloudAccess, Message: fmt.Sprintf("No volume can be made on %s: %s.", task.CloudDisplay(want.Place.Cloud), why)}
	}
	call.Out.Spin("Waiting for other requests on volume " + b.Name)
	ctx, unlock, err := m.locks.Lock(ctx, b.Name)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := m.Store.Volumes().Get(ctx, b.Name)
	if err == nil && v.Stage == state.VolumeDeleting && call.Scope.Sees(v.Workspace) {
		call.Out.Spin("Volume " + b.Name + " is being deleted; waiting until it is gone")
		if err = m.finishDelete(ctx, v); err != nil {
			return failed("Volume %q is being deleted, which has to be over before there can be a new one", v, err)
		}
		err = state.ErrNotFound
	}
	fresh := errors.Is(err, state.ErrNotFound)
	switch {
	case fresh:
		v = newVolume(want, call, workspace)
		if placer, ok := p.(cloud.VolumePlacer); ok {
			placed, err := placer.PlaceVolume(m.onCloud(v, c))
			if err != nil {
				return failed("Volume %q could not be made", v, err)
			}
			v.Is = bare(placed)
		}
		if b.CreationYAML != nil {
			v.CreationYAML = *b.CreationYAML
		}
		if err := m.Store.Volumes().Create(ctx, v); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := fitsRecord(call, workspace, v, want); err != nil {
			return err
		}
		if v.Stage == state.VolumeThere {
			fmt.Fprintf(call.Out, "✓ Volume %s is there already (%s).\n", v.Name, told(v))
			return nil
		}
	}
	call.Out.Spin(fmt.Sprintf("Making volume %s", v.Name))
	v, err = m.finishMake(ctx, c, p, v, fresh)
	if err != nil {
		return err
	}
	call.Out.StopSpin()
	verb := "made"
	if v.Is.Existing {
		verb = "taken as it is; sky never deletes it"
	}
	fmt.Fprintf(call.Out, "✓ Volume %s: %s (%s).\n", v.Name, verb, told(v))
	return nil
}

func infraOf(b api.VolumeApplyBody) string {
	at := task.Infra{Cloud: b.Cloud}
	if b.Region != nil {
		at.Region = *b.Region
	}
	if b.Zone != nil {
		at.Zone = *b.Zone
	}
	return at.String()
}

func newVolume(want cloud.Volume, call cluster.Call, workspace string) *state.Volume {
	v := &state.Volume{
		Name: want.Name, Hash: uuid.NewString(), Stage: state.VolumeMaking,
		UserHash: call.User.ID, UserName: call.User.Name, Workspace: workspace,
		Asked: want, LaunchedAt: time.Now(), LastUse: call.Command,
	}
	v.Is = want
	v.Is.NameOnCloud = want.Name
	if !want.Existing {
		v.Is.NameOnCloud = nameOnCloud(want.Name, call.User.ID, v.Hash)
	}
	return v
}

// maxNameOnCloud is the longest name that fits wherever a name of a volume is
// put, labels of Kubernetes included.
const maxNameOnCloud = 63

// nameOnCloud is a name of its own for each incarnation, so that what is left of
// an earlier one is never taken for it.
func nameOnCloud(name, user, hash string) string {
	own := "-" + hash[:8]
	return task.NameOnCloud(name, user, maxNameOnCloud-len(own)) + own
}

// fitsRecord refuses to apply what differs from the volume of that name.
func fitsRecord(call cluster.Call, workspace string, v *state.Volume, want cloud.Volume) error {
	switch {
	case !call.Scope.Sees(v.Workspace):
		return invalid("The name %q is taken by a volume in a workspace that you may not use. Choose another name.", v.Name)
	case v.ClusterHash != "":
		return invalid("The name %q is taken by a volume that goes with its cluster. Choose another name.", v.Name)
	case cmp.Or(v.Workspace, state.DefaultWorkspace) != cmp.Or(workspace, state.DefaultWorkspace):
		return invalid("The name %q is taken by a volume in the workspace %s. Choose another name, or use it from there: sky -w %s", v.Name, v.Workspace, v.Workspace)
	}
	field, has, asked := difference(v, want)
	if field == "" {
		return nil
	}
	e := invalid("Volume %q exists and is different: its %s is %s, not %s.", v.Name, field, has, asked)
	e.Hint = fmt.Sprintf("A volume is not changed once it is made. Choose another name, or delete this one with all its content first: sky volumes delete %s", v.Name)
	return e
}

// difference is the first field in which a volume is neither as it is asked for
// now nor was asked for like that before; "" if there is none. What is not asked
// for now may be anything.
func difference(v *state.Volume, want cloud.Volume) (field, has, asked string) {
	was, is := v.Asked, v.Is
	text := func(name, was, is, want string) bool {
		if want == "" || want == was || want == is {
			return false
		}
		field, has, asked = name, cmp.Or(is, was, "not set"), want
		return true
	}
	size := func(gb int) string {
		if gb == 0 {
			return ""
		}
		return fmt.Sprintf("%d GB", gb)
	}
	switch {
	case text("type", was.Type, is.Type, want.Type):
	case text("context or region", was.Place.Region, is.Place.Region, want.Place.Region):
	case text("zone", was.Place.Zone, is.Place.Zone, want.Place.Zone):
	case text("size", size(was.SizeGB), size(is.SizeGB), size(want.SizeGB)):
	case text("access mode", cmp.Or(was.AccessMode, cloud.ReadWriteOnce), is.AccessMode, want.AccessMode):
	case text("storage class", was.Class, is.Class, want.Class):
	case text("namespace", was.Namespace, is.Namespace, want.Namespace):
	case text("host path", was.HostPath, is.HostPath, want.HostPath):
	case text("use_existing", fmt.Sprint(was.Existing), "", fmt.Sprint(want.Existing)):
	case text("cleanup_on_deletion", fmt.Sprint(!was.KeepContent), "", fmt.Sprint(!want.KeepContent)):
	case want.Labels != nil && !maps.Equal(was.Labels, want.Labels):
		return "labels", fmt.Sprint(was.Labels), fmt.Sprint(want.Labels)
	}
	return field, has, asked
}

// finishMake brings a volume that is being made to be there. What fails is undone,
// unless the server hands over.
// fresh says that nothing can have been made before.
func (m *Manager) finishMake(ctx context.Context, c *config.Config, p cloud.Volumer, v *state.Volume, fresh bool) (*state.Volume, error) {
	mctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	got, err := p.MakeVolume(mctx, m.onCloud(v, c))
	switch {
	case err == nil:
		return m.made(ctx, v, got)
	case handedOver(ctx):
		return nil, context.Cause(ctx)
	}
	why := fmt.Errorf("volume %s could not be made: %w", v.Name, err)
	undo, done := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer done()
	if fresh && refusedOutright(err) { // nothing was made, now or before
		if derr := m.Store.Volumes().Delete(undo, v.Name, v.Hash); derr != nil {
			return nil, errors.Join(why, derr)
		}
	} else if uerr := m.undo(undo, v, why); uerr != nil {
		return nil, &api.Error{Type: api.ErrRuntime, Err: err,
			Message: fmt.Sprintf("Volume %q could not be made: %s. What there may be of it (%s) could not be removed yet either: %s.", v.Name, words(err), told(v), words(uerr)),
			Hint:    fmt.Sprintf("It is removed as soon as that is possible; sky volumes ls shows it until then. To forget it instead: sky volumes delete --purge %s", v.Name)}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, failed("Volume %q could not be made", v, err)
}

// made notes that a volume is there.
func (m *Manager) made(ctx context.Context, v *state.Volume, got cloud.Volume) (*state.Volume, error) {
	// Whether or not the request was cancelled meanwhile.
	v, err := m.Store.Volumes().Update(context.WithoutCancel(ctx), v.Name, v.Hash, func(v *state.Volume) error {
		name := v.Is.Name
		v.Is = bare(got)
		v.Is.Name = name
		v.Stage, v.Problem = state.VolumeThere, ""
		v.Seen = state.VolumeSeen{At: m.Store.Now(), Exists: true, Ready: true}
		return nil
	})
	return v, err
}

// undo removes what there may be of a volume that could not be made.
func (m *Manager) undo(ctx context.Context, v *state.Volume, why error) error {
	v, err := m.Store.Volumes().BeginDelete(ctx, v.Name, v.Hash)
	if err != nil {
		return err
	}
	if err := m.note(ctx, v, why.Error()); err != nil {
		return err
	}
	return m.finishDelete(ctx, v)
}

// note writes down why a volume's stage is not over.
func (m *Manager) note(ctx context.Context, v *state.Volume, problem string) error {
	_, err := m.Store.Volumes().Update(ctx, v.Name, v.Hash, func(v *state.Volume) error {
		v.Problem = problem
		return nil
	})
	return err
}

// handedOver reports whether another server goes on with the work.
func handedOver(ctx context.Context) bool { return errors.Is(context.Cause(ctx), state.ErrHandover) }

// told is a volume's place and size in a few words.
func told(v *state.Volume) string {
	s := v.Is.Type + " in " + v.Is.Place.String()
	if v.Is.SizeGB > 0 {
		s += fmt.Sprintf(", %d GB", v.Is.SizeGB)
	}
	if v.Is.HostPath != "" {
		return s + ", " + v.Is.HostPath
	}
	return s + ", there called " + v.Is.NameOnCloud
}
