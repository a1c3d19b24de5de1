package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/cli/localserver"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/envelope"
	"github.com/skypilot-go/sky/internal/wholefile"
)

func (a *app) apiRotateKeyCommand() *cobra.Command {
	return a.build(command{
		name: "rotate-key", short: "Make a new key for the secrets in the database of the API server on this machine.", noConfig: true,
		long: "The new key encrypts from then on, and the server encrypts everything anew with it, running or at its next start. The old key stays in the file beside it until you remove it: " +
			"the server's log says when it is not needed any more, except for backups from before. For servers that share a database the key comes from elsewhere: docs/administrators.md says how to change it there.",
		example: "sky api rotate-key",
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.rotateKey(ctx)
		},
	})
}

// rotateKey puts a new key before those in the file of the server of this home
// folder; without a file it asks the server for one.
func (a *app) rotateKey(ctx context.Context) error {
	dir := localserver.Dir(a.home)
	path := filepath.Join(dir, envelope.FileName)
	_, err := envelope.ReadFile(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("there is no API server in %s: run this on the server's machine, as its user", dir)
		}
		if err := wholefile.Write(filepath.Join(dir, envelope.RotateMarker), nil, 0o600); err != nil {
			return err
		}
		a.t.Printf("There is no key in %s. A server whose keys a key management service wraps makes a new one within a minute; one whose keys come from its environment does not: put a new key before the others there.\n", path)
		return nil
	}
	if err != nil {
		return err
	}
	c, err := config.Load(config.Options{Side: config.Server, Home: a.home, Env: a.lookupEnv})
	if err != nil {
		return err
	}
	if c.DatabaseURI() != "" {
		return fmt.Errorf("the database is in PostgreSQL (%s), where other servers may not read what is encrypted with a key that only this one has. "+
			"Add a new key (openssl rand -base64 32) in a line of its own at the end of %s on every server; a minute later put it first everywhere", c.Origin("db"), path)
	}
	next, keys, err := envelope.AddToFile(ctx, path)
	if err != nil {
		return err
	}
	a.t.Printf("The key %s in %s is current from now on. Keep a copy of the file. `sky api logs --server-logs` says when the key %s is not needed any more.\n", next.ID(), path, keys[0].ID())
	return nil
}
