package cli

import (
	"context"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// upload brings the local files of a Dag to a server that does not share this
// machine's files, and notes in the Dag what is where. nil: nothing to do.
func (a *app) upload(ctx context.Context, c *sky.Client, dag *task.Dag) (*string, error) {
	shared, err := c.SharesFiles(ctx)
	if err != nil || shared {
		return nil, err
	}
	files, notes, err := upload.Collect(dag, upload.OwnMachine())
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		a.t.Note("%s", note)
	}
	if len(files) == 0 {
		return nil, nil
	}
	spin := a.t.Spin("[bold cyan]Uploading files[/]")
	defer spin.Stop()
	blob, err := c.Upload(ctx, files, func(sent, total int64) {
		spin.Update("[bold cyan]Uploading files[/] " + format.Bytes(sent) + " of " + format.Bytes(total))
	})
	if err != nil {
		return nil, err
	}
	return &blob, nil
}
