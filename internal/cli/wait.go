package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// wait shows a request's log until it ends and returns its result; err is why there is no
// request. Ctrl-C leaves the request running.
func wait[T any](ctx context.Context, a *app, req *sky.Request[T], err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	log := a.t.Log()
	if a.output != "table" {
		log = a.t.LogTo(a.t.Err)
	}
	defer log.Close()
	o := sky.StreamOptions{Control: log.Control, Interactive: a.interactive}
	if a.output == "json" {
		o.Progress = a.progressed
	}
	v, err := req.Wait(ctx, log, o)
	log.Close()
	if err != nil && ctx.Err() != nil {
		return v, a.left(req.ID())
	}
	return v, err
}

// progressed tells programs how far a transfer is: a line of JSON among the log, which begins
// with {"progress":.
func (a *app) progressed(p api.TransferProgress) {
	if text, err := json.Marshal(map[string]api.TransferProgress{"progress": p}); err == nil {
		a.t.Note("%s", text)
	}
}

// interactive connects this terminal to a login that a request asks for.
func (a *app) interactive(ctx context.Context, session string) error {
	if !a.t.InTTY {
		return errors.New("the request needs a login by hand, and input is not a terminal; run it again in a terminal")
	}
	conn, err := a.client.InteractiveAuth(ctx, session)
	if err != nil {
		return err
	}
	defer conn.Close()
	restore, err := a.t.Raw()
	if err != nil {
		return err
	}
	defer restore()
	go func() { _, _ = io.Copy(conn, a.t.In) }() // ends with the process: a read of a terminal cannot be stopped
	_, err = io.Copy(a.t.Out, conn)
	return err
}

// left says how to come back to a request that goes on.
func (a *app) left(id string) error {
	short := shortID(id)
	a.t.Note("\nThe request goes on without you.")
	a.t.Note("├── View its log:   sky api logs %s", short)
	a.t.Note("├── In a browser:   %s", a.client.StreamURL(short))
	a.t.Note("└── To cancel it:   sky api cancel %s", short)
	return exitError(1)
}

// submitted tells about a request that is not waited for.
func (a *app) submitted(name, id string) {
	short := shortID(id)
	a.t.Println(a.t.Style(term.Green, "Submitted sky."+name+" request: "+id))
	a.t.Println("├── Check logs with: sky api logs " + short)
	a.t.Println("├── Or, visit: " + a.client.StreamURL(short))
	a.t.Println("└── To cancel the request, run: sky api cancel " + short)
}

// finish waits for a request, or with async only tells its id.
func finish[T any](ctx context.Context, a *app, async bool, name string, req *sky.Request[T], err error) (T, error) {
	if err == nil && async {
		var none T
		a.submitted(name, req.ID())
		return none, nil
	}
	return wait(ctx, a, req, err)
}

func shortID(id string) string { return id[:min(8, len(id))] }

// follow shows a log stream on the results' side. detached is true when Ctrl-C
// ended it.
func (a *app) follow(ctx context.Context, l *sky.LogStream) (detached bool, err error) {
	log := a.t.RawLog()
	defer log.Close()
	err = l.Stream(ctx, log, sky.StreamOptions{Follow: true, Control: log.Control})
	if err != nil && ctx.Err() != nil {
		return true, nil
	}
	return false, err
}

// quiet waits for a request's result without showing its log.
func quiet[T any](ctx context.Context, req *sky.Request[T], err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return req.Get(ctx)
}
