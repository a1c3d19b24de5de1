package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) storageCommand() *cobra.Command {
	return a.build(command{
		name: "storage", short: "List and delete buckets that tasks made.",
		example: "sky storage ls\nsky storage delete my-bucket",
		group:   []*cobra.Command{a.storageListCommand(), a.storageDeleteCommand()},
	})
}

func (a *app) storageListCommand() *cobra.Command {
	var verbose bool
	return a.oldFlags(a.build(command{
		name: "ls", short: "List buckets.", max: 0,
		example: "sky storage ls\nsky storage ls -o json",
		flags: func(f flags) {
			f.on(&verbose, "verbose", "v", "Show whole commands.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.StorageList(ctx)
			list, err := wait(ctx, a, req, err)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			if len(list) == 0 {
				a.t.Println("No existing storage.")
				return nil
			}
			a.t.Print(a.t.Table(storageTable(list, verbose, a.now())))
			return nil
		},
	}), oldFlag{name: "all", short: "a", today: "verbose"})
}

func storageTable(list []sky.Storage, verbose bool, now time.Time) *table.Table {
	tab := table.New("NAME", "UPDATED", "STORE", "COMMAND", "STATUS").Whole("NAME", "STATUS").Optional("COMMAND", "UPDATED")
	for _, s := range list {
		cmd := s.LastUse
		if !verbose {
			cmd = format.Truncate(cmd, 25)
		}
		tab.Add(s.Name, format.Ago(float64(s.LaunchedAt), now), format.OrDash(strings.Join(s.Store, ", ")), format.OrDash(cmd), s.Status)
	}
	return tab
}

func (a *app) storageDeleteCommand() *cobra.Command {
	var all, yes, async bool
	return a.build(command{
		name: "delete", args: "[NAMES]...", needs: "NAMES or --all", short: "Delete buckets with all their files.", max: -1,
		long: "With -o json, lines of JSON on the error stream tell how far each deletion is ({\"progress\": …}),\n" +
			"and the exit code is 1 if a bucket could not be deleted.",
		example:  "sky storage delete my-bucket\nsky storage delete 'run-*' -y\nsky storage delete my-bucket -y -o json",
		complete: a.completer(sky.CompleteStorages),
		flags: func(f flags) {
			f.on(&all, "all", "a", "All buckets.")
			f.yes(&yes)
			f.async(&async)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, names []string) error {
			if err := allOrNames(all, names); err != nil {
				return err
			}
			if a.output != "table" && (async || !yes) {
				return usagef("--output goes with -y, and not with --async.")
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			req, err := c.StorageList(ctx)
			list, err := quiet(ctx, req, err)
			if err != nil {
				return err
			}
			var have []string
			mounts := map[string][]string{}
			for _, s := range list {
				have = append(have, s.Name)
				mounts[s.Name] = s.MountedBy
			}
			picked, err := a.pick(ctx, "storage", have, names, all, yes, func(name string) string { return mountedText(name, mounts[name]) })
			if a.output != "table" && len(picked) == 0 {
				_, emitErr := a.emit([]deletedStorage{})
				return cmp.Or(err, emitErr)
			}
			if err != nil || len(picked) == 0 {
				return err
			}
			results, failed := []deletedStorage{}, false
			for _, name := range picked {
				req, err := c.StorageDelete(ctx, name)
				if _, err = finish(ctx, a, async, "storage_delete", req, err); err != nil {
					if !perCluster(err) {
						return a.inFormat(err)
					}
					if a.output == "table" {
						a.t.Warn("Error deleting storage %s: %s", name, errorText(err))
					}
					why := a.asFailure(err)
					results, failed = append(results, deletedStorage{Name: name, Error: &why}), true
					continue
				}
				results = append(results, deletedStorage{Name: name, Deleted: true})
				if !async {
					a.say("Deleted storage " + name + ".")
				}
			}
			if done, err := a.emit(results); err != nil {
				return err
			} else if done && failed {
				return exitError(1)
			}
			return nil
		},
	})
}

// mountedText says which clusters mount a bucket that is to be deleted; "" if none does.
func mountedText(name string, clusters []string) string {
	if len(clusters) == 0 {
		return ""
	}
	return "Storage " + name + " is mounted by " + countedNames("cluster", clusters) + ": what they have not uploaded yet cannot be stored any more, and their jobs that use it fail."
}

// deletedStorage is what became of a bucket that was to be deleted, as -o json prints it.
type deletedStorage struct {
	Name    string   `json:"name"`
	Deleted bool     `json:"deleted"`
	Error   *failure `json:"error,omitempty"`
}

// allOrNames refuses a selection of nothing, and one of everything and more.
func allOrNames(all bool, names []string) error {
	if all == (len(names) > 0) {
		return usagef("Either --all or a name must be specified.")
	}
	return nil
}

// pick chooses what to delete, by name, pattern or all, and asks. Names that there are not are
// said; if there is none of them, that is an error. used says what uses one of those that are
// picked; nil: nothing does.
func (a *app) pick(ctx context.Context, noun string, have, names []string, all, yes bool, used func(name string) string) ([]string, error) {
	picked := have
	if !all {
		picked = nil
		for _, n := range names {
			before := len(picked)
			for _, h := range have {
				if matches(n, h) && !slices.Contains(picked, h) {
					picked = append(picked, h)
				}
			}
			if len(picked) == before && !slices.ContainsFunc(picked, func(p string) bool { return matches(n, p) }) {
				a.progress(strings.ToUpper(noun[:1]) + noun[1:] + " " + n + " not found.")
			}
		}
	}
	if len(picked) == 0 {
		if noun == "storage" {
			a.say("No storage(s) to delete.")
		} else {
			a.say("No " + noun + "s to delete.")
		}
		if slices.ContainsFunc(names, func(name string) bool { return !isPattern(name) }) {
			return nil, exitError(1) // nothing was done for a name
		}
		return nil, nil
	}
	question := ""
	for _, name := range picked {
		text := ""
		if used != nil {
			text = used(name)
		}
		switch {
		case text == "":
		case yes:
			a.t.Warn("%s", text)
		default:
			question += text + "\n"
		}
	}
	if yes {
		return picked, nil
	}
	return picked, a.t.Confirm(ctx, question+"Deleting "+countedNames(noun, picked)+". Proceed?", true)
}
