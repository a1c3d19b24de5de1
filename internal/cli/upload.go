package cli

import (
	"context"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// A move says how the files of a task are announced before they move.
type move struct {
	silent bool // they do not move
	ask    bool // at a terminal, about much
	notes  bool // nobody else says what is left out
}

// announce says which sources are large, and asks about huge ones.
func (a *app) announce(ctx context.Context, dag *task.Dag, m move) error {
	if m.silent {
		return nil
	}
	spin := a.t.Spin("[bold cyan]Looking at the files[/]")
	all := upload.MeasureAll(dag, upload.OwnMachine())
	spin.Stop()
	huge := int64(0)
	for i := range all {
		if all[i].Large() {
			a.t.Note("%s", all[i].Announcement(format.Bytes))
		}
		if m.notes {
			for _, note := range upload.NotesBefore(all[i].Source, all[i].Left, all[i].Files) {
				a.t.Note("%s", note)
			}
		}
		if all[i].Huge() {
			huge += all[i].Bytes
		}
	}
	if huge == 0 || !m.ask || !a.t.InTTY {
		return nil
	}
	return a.t.Confirm(ctx, "Copy "+format.Bytes(huge)+"?", true)
}

// upload brings the local files of a Dag to a server that does not share this
// machine's files, and notes in the Dag what is where. nil: nothing to do.
func (a *app) upload(ctx context.Context, c *sky.Client, dag *task.Dag, m move) (*string, error) {
	shared, err := c.SharesFiles(ctx)
	if err != nil {
		return nil, err
	}
	m.notes = m.notes && shared // or they are said below
	if err := a.announce(ctx, dag, m); err != nil || shared {
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
