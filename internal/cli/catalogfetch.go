package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/wholefile"
)

func (a *app) catalogFetchCommand() *cobra.Command {
	var out string
	var needs strings.Builder
	for _, s := range fetch.Sources() {
		fmt.Fprintf(&needs, "\n%-14s needs %s", s.Cloud, cmp.Or(strings.Join(s.Needs, ", "), "nothing"))
	}
	return a.build(command{
		name: "fetch", args: "CLOUD", short: "Rebuild a price list from the cloud's own price interface.", min: 1, max: 1,
		long:    "Asks the cloud itself, with credentials from the environment or a file, and writes a vms.csv." + needs.String(),
		example: "sky catalog fetch lambda --out ~/.sky/catalogs/v8/lambda/vms.csv",
		flags:   func(f flags) { f.text(&out, "out", "", "File to write; - is standard output.") },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("Missing option '--out'.")
			}
			return a.catalogFetch(ctx, args[0], out)
		},
	})
}

func (a *app) catalogFetch(ctx context.Context, cloud, out string) error {
	sources := fetch.Sources()
	i := slices.IndexFunc(sources, func(s fetch.Source) bool { return s.Cloud == strings.ToLower(cloud) })
	if i < 0 {
		return unfetched(cloud, sources)
	}
	from := sources[i]
	for _, key := range from.Needs {
		if a.env(key) == "" && !strings.HasPrefix(key, "~/") && !strings.Contains(key, " ") { // whoever reads a file says what is wrong with it
			return fmt.Errorf("fetching %s's prices needs %s in the environment", cloud, key)
		}
	}
	a.t.Note("Asking %s for its prices…", cloud)
	rows, err := from.New(a.env).Rows(ctx)
	if err != nil {
		return fmt.Errorf("fetching %s's prices: %w", cloud, err)
	}
	var text bytes.Buffer
	if err := fetch.Write(&text, from.Cloud, rows); err != nil {
		return err
	}
	if out == "-" {
		a.t.Print(text.String())
		return nil
	}
	if err := wholefile.Write(out, text.Bytes(), 0o644); err != nil {
		return err
	}
	a.t.Note("%d offers written to %s", len(rows), out)
	return nil
}

// unfetched says what to do about the prices of a cloud that none can be fetched of.
func unfetched(cloud string, sources []fetch.Source) error {
	c, ok := facts.Find(cloud)
	switch {
	case ok && c.Priced():
		return usagef("%s's API has no prices. Plans use the published list, ~/.sky/catalogs/v8/%s/vms.csv on the server's machine, which 'sky catalog refresh %s' brings. Write other prices into that file: a list that was edited is kept.", c.Display, c.Name, c.Name)
	case ok && c.Rents():
		return usagef("%s has no price list: what it offers is read from it for each plan.", c.Display)
	}
	var known []string
	for _, s := range sources {
		known = append(known, s.Cloud)
	}
	return usagef("'%s' is not a cloud whose prices can be fetched; those are: %s.", cloud, strings.Join(known, ", "))
}
