package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// backupHeader is the first entry of a backup.
type backupHeader struct {
	ID         string    `json:"id"`
	Generation int64     `json:"generation"`
	Schema     int64     `json:"schema"`
	CreatedAt  time.Time `json:"created_at"`
	Version    string    `json:"version"`
	Keys       []string  `json:"keys"`
	WithKeys   bool      `json:"with_keys"`
}

// backupMade is the shape of api backup -o json.
type backupMade struct {
	File string `json:"file"`
	Size int64  `json:"size"` // bytes
	backupHeader
}

func (a *app) apiBackupCommand() *cobra.Command {
	var keys bool
	return a.build(command{
		name: "backup", args: "[FILE]", short: "Write a backup of the API server's state into a file.", noConfig: true, max: 1,
		long: "The server goes on meanwhile; what is written is its state at one moment: clusters, jobs, requests, users and tokens.\n" +
			"Files that users uploaded, logs and the configuration are not in it, and keys only with --with-keys: keep the keys'\n" +
			"files somewhere else, because without them neither secrets can be read nor machines be reached. The file is for\n" +
			"nobody but you. It is put back with: sky api restore FILE",
		example: "sky api backup sky-backup.tar.gz\nsky api backup --with-keys -o json",
		flags: func(f flags) {
			f.on(&keys, "with-keys", "", "Put the keys that the content needs into the backup too.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			file := "sky-backup-" + a.now().Format("20060102-150405") + ".tar.gz"
			if len(args) > 0 {
				file = args[0]
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			spin := a.t.Spin("[bold cyan]Writing the backup[/]")
			var made backupMade
			var readErr error
			err = wholefile.Fill(file, 0o600, func(w *os.File) error {
				if err := c.Backup(ctx, api.BackupBody{WithKeys: keys}, &progressWriter{w: w, tell: func(n int64) {
					spin.Update(fmt.Sprintf("[bold cyan]Writing the backup[/] (%s)", sizeText(n)))
				}}); err != nil {
					return err
				}
				if made, readErr = readBackup(w.Name()); readErr != nil {
					return readErr
				}
				return w.Sync()
			})
			spin.Stop()
			if readErr != nil {
				return fmt.Errorf("the backup did not arrive whole, so nothing was written; try again: %w", readErr)
			}
			if err != nil {
				return fmt.Errorf("writing the backup: %w", err)
			}
			made.File = file
			if done, err := a.emit(made); done {
				return err
			}
			a.t.Printf("Backup saved to: %s (%s)\n", file, sizeText(made.Size))
			a.t.Printf("  installation %s, generation %d, of %s\n", made.ID, made.Generation, made.CreatedAt.Local().Format(time.DateTime))
			if len(made.Keys) > 0 && !made.WithKeys {
				a.t.Printf("%s It cannot be used without these files below the server's home folder, which are not in it (--with-keys puts them in):\n", a.t.Style(term.Yellow, "Keys:"))
				for _, k := range made.Keys {
					a.t.Printf("  ~/%s\n", k)
				}
			}
			return nil
		},
	})
}

// progressWriter reports how much was written, a few times a second.
type progressWriter struct {
	w    io.Writer
	n    int64
	last time.Time
	tell func(n int64)
}

func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	if now := time.Now(); now.Sub(p.last) > 200*time.Millisecond {
		p.last = now
		p.tell(p.n)
	}
	return n, err
}

// readBackup reads a backup to its end, and says what it is.
func readBackup(name string) (made backupMade, err error) {
	f, err := os.Open(name)
	if err != nil {
		return made, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return made, err
	}
	made.Size = info.Size()
	z, err := gzip.NewReader(f)
	if err != nil {
		return made, err
	}
	last := ""
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if last != "SHA256SUMS" {
				return made, errors.New("it ends too early")
			}
			_, err = io.Copy(io.Discard, z) // checks the sum
			return made, err
		}
		if err != nil {
			return made, err
		}
		if last == "" {
			if err := json.NewDecoder(in).Decode(&made.backupHeader); err != nil {
				return made, err
			}
		}
		last = h.Name
	}
}

func sizeText(n int64) string {
	const units = "KMGTP"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for ; v >= 1024 && u < len(units)-1; u++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", v, units[u])
}

func (a *app) apiRestoreCommand() *cobra.Command {
	var yes, other bool
	return a.build(command{
		name: "restore", args: "FILE", short: "Put a backup in the place of the API server's state on this machine.", noConfig: true, min: 1, max: 1,
		long: "FILE is what sky api backup wrote, or a copy of the database file ~/.sky/api_server/sky.db. The server must be stopped.\n" +
			"What is there now is kept aside, in a folder beside it. Requests that had not ended when the backup was made are\n" +
			"ended. Machines that were rented since are not in the backup: sky sweep finds them by their tags.",
		example: "sky api stop\nsky api restore sky-backup.tar.gz\nsky api start\nsky sweep --adopt",
		flags: func(f flags) {
			f.on(&other, "other-installation", "", "Allow a backup of another installation than this home folder's.")
			f.yes(&yes)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			if a.p.Restore == nil {
				return errors.New("this build of sky has no API server")
			}
			file, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if _, err := os.Stat(file); err != nil {
				return err
			}
			if !yes {
				if err := a.t.Confirm(ctx, "The state of the API server on this machine is replaced by the backup's. Proceed?", false); err != nil {
					return err
				}
			}
			spin := a.t.Spin("[bold cyan]Restoring the backup[/]")
			r, err := a.p.Restore(ctx, a.home, file, other)
			spin.Stop()
			if err != nil {
				return err
			}
			if done, err := a.emit(r); done {
				return err
			}
			a.t.Print(restoredText(r))
			return nil
		},
	})
}

// restoredText is what a restore has done and what comes next, for people.
func restoredText(r *Restored) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Restored installation %s (generation %d) from %s.\n", r.Installation, r.Generation, r.File)
	if r.Aside != "" {
		fmt.Fprintf(&b, "What was there before is in %s.\n", r.Aside)
	}
	if r.KeysRestored > 0 {
		fmt.Fprintf(&b, "%s restored.\n", countText(r.KeysRestored, "key was", "keys were"))
	}
	if r.KeysAbsent {
		b.WriteString("Keys that the content needs are neither here nor in the backup: put their files back before the start.\n")
	}
	if r.RequestsEnded > 0 {
		fmt.Fprintf(&b, "%s not ended when the backup was made, and will not go on.\n", countText(r.RequestsEnded, "request had", "requests had"))
	}
	if len(r.LiveJobs) > 0 {
		ids := strings.Trim(fmt.Sprint(r.LiveJobs), "[]")
		fmt.Fprintf(&b, "%s not ended then, and will go on, from the beginning where the cluster is gone: %s. Those that have ended since: sky jobs cancel IDS\n",
			countText(len(r.LiveJobs), "managed job had", "managed jobs had"), ids)
	}
	b.WriteString("Next: sky api start, then sky sweep to see machines that the backup does not know; sky sweep --adopt takes them back.\n")
	return b.String()
}
