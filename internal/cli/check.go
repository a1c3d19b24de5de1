package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/similar"
)

func (a *app) checkCommand() *cobra.Command {
	var verbose bool
	var workspace string
	return a.build(command{
		name: "check", args: "[INFRA_LIST]...", short: "Check which infrastructure can be used, and why not the rest.", max: -1,
		long: "INFRA_LIST are names such as aws, k8s/my-context, ssh/my-pool or local; cloudflare or r2 for a cloud that has object stores only; " +
			"and compute or storage, to check machines or buckets alone. What a cloud can be used for stands in brackets.",
		example: "sky check\nsky check aws lambda -v\nsky check k8s/my-context\nsky check storage",
		flags: func(f flags) {
			f.on(&verbose, "verbose", "v", "Show the accounts that are used, and how to set up what is not.")
			f.text(&workspace, "workspace", "w", "Check for one workspace.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, infra []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			body := api.CheckBody{Verbose: verbose, Clouds: infra}
			if workspace != "" {
				if err := a.knowsWorkspace(ctx, c, workspace); err != nil {
					return err
				}
				body.Workspace = &workspace
			}
			req, err := c.Check(ctx, body)
			enabled, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(enabled); done {
				return err
			}
			a.t.Printf("\nUsing SkyPilot API server: %s\n", c.Endpoint())
			return nil
		},
	})
}

// knowsWorkspace refuses a workspace that the server does not list.
func (a *app) knowsWorkspace(ctx context.Context, c *sky.Client, name string) error {
	req, err := c.Workspaces(ctx)
	all, err := quiet(ctx, req, err)
	if err != nil {
		return err
	}
	if _, ok := all[name]; ok {
		return nil
	}
	var names []string
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Workspace '%s' not found in SkyPilot configuration. Available workspaces: %s%s",
		name, strings.Join(names, ", "), didYouMean(similar.Names(name, names)))}
}

func (a *app) workspaceCommand() *cobra.Command {
	var clear bool
	use := a.build(command{
		name: "use", args: "[NAME]", needs: "NAME or --clear", short: "Set the workspace that your commands use.", max: 1,
		example: "sky workspace use research\nsky workspace use --clear",
		flags:   func(f flags) { f.on(&clear, "clear", "", "Have no preferred workspace.") },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			switch {
			case clear && len(args) > 0:
				return usagef("Cannot pass both --clear and a workspace name.")
			case !clear && len(args) == 0:
				return usagef("Specify a workspace name, or pass --clear to remove your current default.")
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			if clear {
				if err := c.PreferWorkspace(ctx, nil); err != nil {
					return noLogin(err)
				}
				a.t.Println("Cleared preferred workspace.")
				return nil
			}
			if err := c.PreferWorkspace(ctx, &args[0]); err != nil {
				return noLogin(err)
			}
			a.t.Printf("Set preferred workspace to '%s'.\n", args[0])
			return nil
		},
	})
	info := a.build(command{
		name: "info", short: "Show which workspace your commands use, and why.",
		example: "sky workspace info\nsky workspace info -o json",
		flags:   func(f flags) { f.out(a) },
		run:     func(ctx context.Context, _ *cobra.Command, _ []string) error { return a.workspaceInfo(ctx) },
	})
	return a.build(command{name: "workspace", example: "sky workspace use team-a\nsky workspace info\nsky workspace create research --private --user ada", short: "Choose, look at and manage workspaces.", group: append([]*cobra.Command{use, info}, a.workspaceAdminCommands()...)})
}

// withoutLogin is the workspace of users that a server does not tell apart.
func withoutLogin(asked string) api.WorkspaceChoice {
	info := api.WorkspaceChoice{Workspace: new("default"), Source: "default", Note: new("this API server has no logins, so nobody has a preferred workspace")}
	if asked != "" {
		info.Workspace, info.Source = &asked, "explicit"
	}
	info.Accessible = []string{*info.Workspace}
	return info
}

// noLogin explains a refusal of a server that does not tell users apart.
func noLogin(err error) error {
	if _, anonymous := errors.AsType[*sky.AuthError](err); anonymous {
		return errors.New("this API server has no logins, so it keeps no preferred workspace. Set active_workspace in ~/.sky/config.yaml instead")
	}
	return err
}

func (a *app) workspaceInfo(ctx context.Context) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	s, err := a.config()
	if err != nil {
		return err
	}
	info, err := c.MyWorkspace(ctx, s.workspace)
	if _, anonymous := errors.AsType[*sky.AuthError](err); anonymous {
		info, err = withoutLogin(s.workspace), nil
	}
	if err != nil {
		return err
	}
	if done, err := a.emit(info); done {
		return err
	}
	name, preferred, accessible := "-", "(not set)", "(none)"
	if info.Workspace != nil {
		name = *info.Workspace
	}
	if info.Preferred != nil {
		preferred = "'" + *info.Preferred + "'"
	}
	if len(info.Accessible) > 0 {
		accessible = format.Quote(info.Accessible)
	}
	a.t.Printf("Workspace: '%s'\n├── Source: %s\n", name, info.Source)
	if info.Note != nil && *info.Note != "" {
		a.t.Printf("├── Note: %s\n", *info.Note)
	}
	a.t.Printf("├── Preferred: %s\n└── Accessible: %s\n", preferred, accessible)
	return nil
}
