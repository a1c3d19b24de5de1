package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/task"
)

func (a *app) volumesCommand() *cobra.Command {
	return a.build(command{
		name: "volumes", aliases: []string{"volume"}, short: "Make, list and delete volumes.",
		example: "sky volumes apply volume.yaml\nsky volumes ls\nsky volumes delete data",
		group:   []*cobra.Command{a.volumesApplyCommand(), a.volumesListCommand(), a.volumesDeleteCommand()},
	})
}

// volumeOptions are the options of sky volumes apply; they go over the file.
type volumeOptions struct {
	name, infra, kind, size string
	useExisting             *bool
	yes, async              bool
}

func (a *app) volumesApplyCommand() *cobra.Command {
	var o volumeOptions
	return a.build(command{
		name: "apply", args: "[YAML]", needs: "YAML or --name, --infra and --type", short: "Make a volume, or register one that exists.", max: 1,
		example: "sky volumes apply volume.yaml\nsky volumes apply -n data --infra k8s --type k8s-pvc --size 100",
		flags: func(f flags) {
			f.text(&o.name, "name", "n", "Name of the volume.")
			f.text(&o.infra, "infra", "", "Where the volume is.")
			f.choice(&o.kind, "type", "", "Kind of volume.", task.VolumeTypes...)
			f.text(&o.size, "size", "", "Size in GB.")
			f.tri(&o.useExisting, "use-existing", "", "Register a volume that exists.")
			f.yes(&o.yes)
			f.async(&o.async)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			v, text := &task.Volume{}, ""
			if len(args) > 0 {
				var err error
				if v, text, err = readVolume(expandHome(args[0], a.home)); err != nil {
					return err
				}
			}
			o.over(v)
			return a.applyVolume(ctx, v, text, o)
		},
	})
}

func readVolume(path string) (*task.Volume, string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err
		}
		return nil, "", usagef("'%s' needs to be a YAML file that describes a volume: %v", path, err)
	}
	v, err := task.ParseVolume(path, data)
	return v, string(data), err
}

// over lays the options over what a file says.
func (o volumeOptions) over(v *task.Volume) {
	for to, s := range map[*string]string{&v.Name: o.name, &v.Infra: o.infra, &v.Type: o.kind, &v.Size: o.size} {
		if s != "" {
			*to = s
		}
	}
	if o.useExisting != nil {
		v.UseExisting = *o.useExisting
	}
}

// applyVolume checks a volume here and on the server, asks, and makes it. text is
// the file it comes from; "": none.
func (a *app) applyVolume(ctx context.Context, v *task.Volume, text string, o volumeOptions) error {
	d, err := v.Check()
	if err != nil {
		return usagef("%v", err)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	body := api.VolumeApplyBody{
		Name: v.Name, VolumeType: v.Type, Cloud: d.Place.Cloud, Region: optional(d.Place.Region), Zone: optional(d.Place.Zone),
		Config: v.Config, Labels: v.Labels, UseExisting: &v.UseExisting, CreationYAML: optional(text),
	}
	if v.Size != "" {
		body.Size = new(api.Text(v.Size))
	}
	check := api.VolumeValidateBody{Name: &v.Name, VolumeType: &v.Type, Infra: optional(v.Infra), Size: body.Size, Labels: v.Labels, Config: v.Config, UseExisting: &v.UseExisting}
	if err := c.ValidateVolume(ctx, check); err != nil {
		return err
	}
	if !o.yes {
		if err := a.t.Confirm(ctx, fmt.Sprintf("Proceed to create volume '%s'?", v.Name), true); err != nil {
			return err
		}
	}
	req, err := c.VolumeApply(ctx, body)
	if _, err = finish(ctx, a, o.async, "volume_apply", req, err); err == nil && !o.async {
		a.t.Println(fmt.Sprintf("Mount it in a task with: volumes: {/mnt/%s: %s}", v.Name, v.Name))
	}
	return err
}

// optional is nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (a *app) volumesListCommand() *cobra.Command {
	var verbose, refresh bool
	return a.build(command{
		name: "ls", short: "List volumes.", max: 0,
		example: "sky volumes ls\nsky volumes ls -r -o json",
		flags: func(f flags) {
			f.on(&verbose, "verbose", "v", "Show everything about each volume.")
			f.on(&refresh, "refresh", "r", "Ask the infrastructure for the current state.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.VolumeList(ctx, refresh)
			list, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			a.t.Print(volumesText(a.t, list, verbose, a.now()))
			return nil
		},
	})
}

func (a *app) volumesDeleteCommand() *cobra.Command {
	var all, purge, yes, async bool
	return a.build(command{
		name: "delete", args: "[NAMES]...", needs: "NAMES or --all", short: "Delete volumes with all their data.", max: -1,
		example:  "sky volumes delete data\nsky volumes delete 'run-*' -y",
		complete: a.completer(sky.CompleteVolumes),
		flags: func(f flags) {
			f.on(&all, "all", "a", "All volumes.")
			f.on(&purge, "purge", "p", "Forget the volume even when it cannot be deleted.")
			f.yes(&yes)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			if err := allOrNames(all, names); err != nil {
				return err
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.VolumeList(ctx, false)
			list, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			var have []string
			for _, v := range list {
				if !v.Ephemeral || slices.Contains(names, v.Name) { // the others go with their clusters
					have = append(have, v.Name)
				}
			}
			picked, err := a.pick(ctx, "volume", have, names, all, yes, nil) // the server refuses what is in use
			if err != nil || len(picked) == 0 {
				return err
			}
			del, err := c.VolumeDelete(ctx, picked, purge)
			if _, err = finish(ctx, a, async, "volume_delete", del, err); err != nil {
				if !perCluster(err) {
					return err
				}
				a.t.Warn("Error deleting volumes %s: %s", strings.Join(picked, ", "), errorText(err))
				if e, ok := asAPIError(err); ok && e.Hint != "" {
					a.t.Warn("%s", e.Hint)
				}
			}
			return nil
		},
	})
}
