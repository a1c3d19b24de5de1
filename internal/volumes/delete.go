package volumes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

// Delete deletes volumes with their content. One that fails does not keep the
// others from being deleted.
func (m *Manager) Delete(ctx context.Context, call cluster.Call, b api.VolumesDeleteBody) error {
	var errs []error
	for _, name := range b.Names {
		err := m.deleteOne(ctx, call, name, b.Purge)
		if handedOver(ctx) || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return joinErrors(errs)
}

// joinErrors is one error that tells of several.
func joinErrors(errs []error) error {
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	out := &api.Error{Type: api.ErrRuntime, Err: errors.Join(errs...)}
	var lines []string
	for _, err := range errs {
		line := err.Error()
		if e, ok := errors.AsType[*api.Error](err); ok {
			line = e.Message
			if e.Hint != "" {
				line += "\n  " + e.Hint
			}
		}
		lines = append(lines, line)
	}
	out.Message = strings.Join(lines, "\n")
	return out
}

func (m *Manager) deleteOne(ctx context.Context, call cluster.Call, name string, purge bool) error {
	call.Out.Spin("Waiting for other requests on volume " + name)
	ctx, unlock, err := m.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := m.get(ctx, call.Scope, name)
	switch {
	case err != nil && call.Attempt > 1 && errors.Is(err, state.ErrNotFound):
		return nil // the attempt before the crash got that far
	case err != nil:
		return err
	case !call.Scope.Owns(v.UserHash):
		return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Volume %q belongs to %s: only they or an administrator may delete it.", name, v.UserName)}
	case v.ClusterHash != "":
		return m.goesWith(ctx, v)
	}
	if v, err = m.Store.Volumes().BeginDelete(ctx, v.Name, v.Hash); err != nil {
		if held, ok := errors.AsType[*state.VolumeHeldError](err); ok {
			return inUse(held)
		}
		return err
	}
	call.Out.Spin("Deleting volume " + name)
	err = m.finishDelete(ctx, v)
	switch {
	case err == nil:
		call.Out.StopSpin()
		fmt.Fprintf(call.Out, "✓ Volume %s: %s.\n", name, gone(v))
		return nil
	case handedOver(ctx):
		return context.Cause(ctx)
	case purge:
		if derr := m.Store.Volumes().Delete(context.WithoutCancel(ctx), v.Name, v.Hash); derr != nil {
			return errors.Join(err, derr)
		}
		fmt.Fprintf(call.Out, "⚠ Volume %s could not be deleted (%s); it is forgotten as --purge asks. What may be left and cost money: %s.\n", name, words(err), told(v))
		return nil
	}
	if used, ok := errors.AsType[*cloud.InUseError](err); ok {
		return &api.Error{Type: api.ErrValue, Err: err, Message: fmt.Sprintf("Volume %q is mounted by %s and stays as it is.", name, strings.Join(used.By, ", ")),
			Hint: "They are not clusters of this installation. End them first, then delete the volume."}
	}
	return &api.Error{Type: api.ErrRuntime, Err: err, Message: fmt.Sprintf("Volume %q could not be deleted yet: %s", name, words(err)),
		Hint: fmt.Sprintf("It is deleted as soon as that is possible; nothing can mount it any more. To forget it and leave what is there: sky volumes delete --purge %s", name)}
}

func gone(v *state.Volume) string {
	switch {
	case v.Is.Existing:
		return "forgotten; what it was taken from stays (" + told(v) + ")"
	case v.Is.KeepContent:
		return "deleted; the folders " + v.Is.HostPath + " of the machines stay as they are"
	}
	return "deleted"
}

func inUse(held *state.VolumeHeldError) error {
	return &api.Error{Type: api.ErrValue, Err: held,
		Message: fmt.Sprintf("Volume %q is in use by the cluster%s %s and stays as it is.", held.Volume, plural(len(held.Clusters)), strings.Join(held.Clusters, ", ")),
		Hint:    fmt.Sprintf("Take down what uses it first: sky down %s", strings.Join(held.Clusters, " "))}
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// goesWith refuses to delete a volume that goes with its cluster.
func (m *Manager) goesWith(ctx context.Context, v *state.Volume) error {
	by, err := m.Store.Volumes().Holders(ctx, v.Name)
	if err != nil {
		return err
	}
	e := invalid("Volume %q goes with its cluster, and cannot be deleted before.", v.Name)
	if len(by) > 0 {
		e.Hint = "To delete both: sky down " + by[0].Cluster
	}
	return e
}

// finishDelete deletes a volume whose end was begun, and forgets it. One that
// turns out to be mounted stays.
func (m *Manager) finishDelete(ctx context.Context, v *state.Volume) error {
	p, err := m.volumer(v.Is.Place.Cloud)
	if err != nil {
		return err
	}
	dctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	err = p.DeleteVolume(dctx, m.onCloud(v, m.Config()))
	if err == nil {
		return m.Store.Volumes().Delete(context.WithoutCancel(ctx), v.Name, v.Hash)
	}
	if handedOver(ctx) {
		return err
	}
	_, nerr := m.Store.Volumes().Update(context.WithoutCancel(ctx), v.Name, v.Hash, func(now *state.Volume) error {
		if is[*cloud.InUseError](err) && now.Seen.Exists {
			now.Stage, now.Problem = state.VolumeThere, ""
			return nil
		}
		now.Problem = words(err)
		return nil
	})
	if errors.Is(nerr, state.ErrNotFound) {
		nerr = nil
	}
	return errors.Join(err, nerr)
}
