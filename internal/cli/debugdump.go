package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/wholefile"
)

func (a *app) debugDumpCommand() *cobra.Command {
	var requests, clusters []string
	var jobs []int
	var minutes float64
	var output string
	var async bool
	return a.build(command{
		name: "debug-dump", short: "Collect what support needs into one archive.", noConfig: true, max: 0,
		example: "sky debug-dump --recent-minutes 60\nsky debug-dump -c dev -j 3 --output dump.zip",
		flags: func(f flags) {
			f.texts(&requests, "request-ids", "r", "A request to include (may be repeated).")
			f.texts(&clusters, "cluster-names", "c", "A cluster to include (may be repeated).")
			f.IntSliceVarP(&jobs, "job-ids", "j", nil, "A managed job to include (may be repeated).")
			f.note("job-ids", noteMeta, "INTEGER")
			f.Float64Var(&minutes, "recent-minutes", 0, "Include what happened in the last minutes.")
			f.note("recent-minutes", noteMeta, "FLOAT")
			f.text(&output, "output", "", "Where to write the archive.")
			f.switchable(&async, "async", "", "")
			f.hide("async")
		},
		run: func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			recent := cmd.Flags().Changed("recent-minutes")
			switch {
			case len(requests)+len(clusters)+len(jobs) == 0 && !recent:
				return usagef("At least one of --request-ids, --cluster-names, --job-ids, or --recent-minutes must be provided.")
			case recent && minutes <= 0:
				return usagef("--recent-minutes must be a positive number.")
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			body := api.DebugDumpBody{
				RequestIDs: requests, ClusterNames: clusters, ManagedJobIDs: jobs,
				ClientInfo: clientInfo(),
			}
			if recent {
				body.RecentMinutes = &minutes
			}
			req, err := c.DebugDump(ctx, body)
			if err != nil {
				return err
			}
			if async {
				a.t.Println("Request submitted with ID: " + req.ID())
				return nil
			}
			remote, err := wait(ctx, a, req, nil)
			if err != nil {
				return err
			}
			if output == "" {
				output = "sky-debug-dump-" + a.now().Format("20060102-150405") + ".zip"
			}
			a.t.Printf("Downloading debug dump to %s...\n", output)
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			if err := wholefile.Fill(output, 0o600, func(w *os.File) error { return c.DownloadDump(ctx, remote, w) }); err != nil {
				return fmt.Errorf("downloading the debug dump: %w", err)
			}
			a.t.Printf("Debug dump saved to: %s\n", output)
			return nil
		},
	})
}
