package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
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

// volumeSpec is a volume as its file and the options say it.
type volumeSpec struct {
	Name        string            `yaml:"name"`
	Type        string            `yaml:"type"`
	Infra       string            `yaml:"infra"`
	Size        any               `yaml:"size"`
	Labels      map[string]string `yaml:"labels"`
	Config      map[string]any    `yaml:"config"`
	UseExisting *bool             `yaml:"use_existing"`
}

func (a *app) volumesApplyCommand() *cobra.Command {
	var o volumeSpec
	var size string
	var yes, async bool
	return a.build(command{
		name: "apply", args: "[YAML]", short: "Make a volume, or register one that exists.", max: 1,
		example: "sky volumes apply volume.yaml\nsky volumes apply -n data --infra k8s --type k8s-pvc --size 100",
		flags: func(f flags) {
			f.text(&o.Name, "name", "n", "Name of the volume.")
			f.text(&o.Infra, "infra", "", "Where the volume is.")
			f.choice(&o.Type, "type", "", "Kind of volume.", "k8s-pvc", "k8s-hostpath", "runpod-network-volume")
			f.text(&size, "size", "", "Size in GB.")
			f.tri(&o.UseExisting, "use-existing", "", "Register a volume that exists.")
			f.yes(&yes)
			f.async(&async)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			v := volumeSpec{}
			if len(args) > 0 {
				var err error
				if v, err = readVolume(expandHome(args[0], a.home)); err != nil {
					return err
				}
			}
			return a.applyVolume(ctx, v.with(o, size), yes, async)
		},
	})
}

func readVolume(path string) (v volumeSpec, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return v, usagef("'%s' needs to be a YAML file: %v", path, err)
	}
	if err := yaml.Unmarshal(data, &v); err != nil {
		return v, usagef("'%s' needs to be a YAML file: %v", path, err)
	}
	return v, nil
}

// with lays options over the file.
func (v volumeSpec) with(o volumeSpec, size string) volumeSpec {
	set := func(to *string, s string) {
		if s != "" {
			*to = s
		}
	}
	set(&v.Name, o.Name)
	set(&v.Type, o.Type)
	set(&v.Infra, o.Infra)
	if size != "" {
		v.Size = size
	}
	if o.UseExisting != nil {
		v.UseExisting = o.UseExisting
	}
	return v
}

func (a *app) applyVolume(ctx context.Context, v volumeSpec, yes, async bool) error {
	if err := task.ValidVolumeName(v.Name, v.Type); err != nil {
		return usagef("%v", err)
	}
	infra, err := task.ParseInfra(v.Infra)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	body := api.VolumeApplyBody{
		Name: v.Name, VolumeType: v.Type, Cloud: infra.Cloud, Region: optional(infra.Region), Zone: optional(infra.Zone),
		Config: v.Config, Labels: v.Labels, UseExisting: v.UseExisting,
	}
	if v.Size != nil {
		body.Size = new(api.Text(fmt.Sprint(v.Size)))
	}
	if !yes {
		if err := a.t.Confirm(ctx, fmt.Sprintf("Proceed to create volume '%s'?", v.Name), true); err != nil {
			return err
		}
	}
	req, err := c.VolumeApply(ctx, body)
	_, err = finish(ctx, a, async, "volume_apply", req, err)
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
			if err != nil {
				return err
			}
			list, err := wait(ctx, a, req)
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
		name: "delete", args: "[NAMES]...", short: "Delete volumes with all their data.", max: -1,
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
				have = append(have, v.Name)
			}
			picked, err := a.pick(ctx, "volume", have, names, all, yes)
			if err != nil || len(picked) == 0 {
				return err
			}
			del, err := c.VolumeDelete(ctx, picked, purge)
			if _, err = finish(ctx, a, async, "volume_delete", del, err); err != nil {
				if !perCluster(err) {
					return err
				}
				a.t.Warn("Error deleting volumes %s: %s", strings.Join(picked, ", "), errorText(err))
			}
			return nil
		},
	})
}
