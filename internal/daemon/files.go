package daemon

import (
	"context"
	"os"

	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
)

// files are those that the tasks of a user's request may bring to nodes, by what
// the server found when it accepted the request. Where managed jobs are handed to,
// everything is uploaded.
func (d *daemon) files(ctx context.Context, user string, found *state.RequestFiles) (upload.Files, error) {
	if found == nil {
		// It was accepted before a server told. Then paths in it were of the server's
		// machine, which is everybody's if nobody logs in.
		if d.logins || os.Getenv(controller.EnvFar) == "1" {
			return upload.Files{}, nil
		}
		return upload.OwnMachine(), nil
	}
	have, err := d.uploads.Files(ctx, user, *found)
	if err == nil && found.Own && os.Getenv(controller.EnvFar) != "1" {
		have = have.AndOwnMachine()
	}
	return have, err
}
