package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// dumpedFile is one file of a dump.
type dumpedFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes
}

func (a *app) apiDumpCommand() *cobra.Command {
	var minutes int
	return a.build(command{
		name: "dump", args: "[FILE]", short: "Write what a bug report needs to know about the API server into a file.", noConfig: true, max: 1,
		long: "The file is a tar archive of versions, the configuration, clusters, requests, attempts to get machines, managed jobs, metrics and the end of the server's log. " +
			"Secrets, task files and results are left out. Look through it before you give it away: names of clusters, users and machines are in it.",
		example: "sky api dump bug.tar.gz\nsky api dump bug.tar.gz --recent-minutes 60",
		flags: func(f flags) {
			f.IntVar(&minutes, "recent-minutes", 0, "Only what happened in the last minutes.")
			f.note("recent-minutes", noteMeta, "INTEGER")
			f.out(a)
		},
		run: func(ctx context.Context, cmd *cobra.Command, args []string) error {
			b := api.DebugDumpBody{ClientInfo: clientInfo()}
			if cmd.Flags().Changed("recent-minutes") {
				if minutes <= 0 {
					return usagef("--recent-minutes must be a positive number.")
				}
				b.RecentMinutes = new(float64(minutes))
			}
			file := "sky-dump-" + a.now().Format("20060102-150405") + ".tar.gz"
			if len(args) > 0 {
				file = args[0]
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			err = wholefile.Fill(file, 0o600, func(w *os.File) error { return c.Dump(ctx, b, w) })
			if err != nil {
				return fmt.Errorf("writing the dump: %w", err)
			}
			files, err := listTarball(file)
			if err != nil {
				return fmt.Errorf("%s is not a whole dump; try again: %w", file, err)
			}
			if done, err := a.emit(files); done {
				return err
			}
			for _, f := range files {
				a.t.Printf("  %-20s %d bytes\n", f.Name, f.Size)
			}
			a.t.Printf("Dump saved to: %s\n", file)
			return nil
		},
	})
}

// clientInfo reports which program asked for a dump.
func clientInfo() map[string]any {
	return map[string]any{"version": api.ProductVersion, "commit": api.Commit(), "os": runtime.GOOS, "arch": runtime.GOARCH}
}

// listTarball reads a packed archive to its end.
func listTarball(name string) ([]dumpedFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	files := []dumpedFile{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, z) // checks the sum
			return files, err
		}
		if err != nil {
			return nil, err
		}
		files = append(files, dumpedFile{h.Name, h.Size})
	}
}
