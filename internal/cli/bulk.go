package cli

import (
	"context"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// bulk does one thing to several clusters at once.
type bulk struct {
	doing string // "Terminating cluster X": how a line begins, less the name
	quote bool   // the name in quotes
	names []string
	async bool
	// submit sends the request for one cluster.
	submit func(ctx context.Context, name string) (*sky.Request[any], error)
	// done is what follows "done" for a cluster; may be nil.
	done func(name string) string
	// tip follows when one failed.
	tip string
}

const bulkLimit = 16

// run reports each cluster and never fails for one of them: what went wrong is
// shown, and the exit code stays 0 so that scripts can go on.
func (b bulk) run(ctx context.Context, a *app) error {
	ids, reasons := make([]string, len(b.names)), make([]error, len(b.names))
	var spin *term.Spinner
	if len(b.names) > 1 && !b.async {
		spin = a.t.Spin("[bold cyan]" + b.doing + " " + countedNames("cluster", b.names) + "[/]")
		defer spin.Stop()
	}
	var g errgroup.Group
	g.SetLimit(bulkLimit)
	for i, name := range b.names {
		g.Go(func() error {
			ids[i], reasons[i] = b.one(ctx, a, name)
			return nil
		})
	}
	_ = g.Wait()
	if spin != nil {
		spin.Stop()
	}
	if ctx.Err() != nil {
		for _, id := range ids {
			if id != "" {
				return a.left(id)
			}
		}
		return ctx.Err()
	}
	return b.summary(a, ids, reasons)
}

func (b bulk) line(name string) string {
	if b.quote {
		name = "'" + name + "'"
	}
	return b.doing + " " + name + "..."
}

func (b bulk) one(ctx context.Context, a *app, name string) (string, error) {
	req, err := b.submit(ctx, name)
	if err == nil && b.async {
		return req.ID(), nil
	}
	id := ""
	if err == nil {
		id = req.ID()
		var w io.Writer = io.Discard
		o := sky.StreamOptions{}
		if len(b.names) == 1 {
			log := a.t.Log()
			defer log.Close()
			w, o.Control = log, log.Control
		}
		_, err = req.Wait(ctx, w, o)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.t.Print(a.t.Style(term.Red, b.line(name)+"failed. ") + "\nReason: " + plainText(err.Error()) + "\n")
	default:
		text := a.t.Style(term.Green, b.line(name)+"done.")
		if b.done != nil {
			text += "\n" + indent(b.done(name), "  ")
		}
		a.t.Println(text)
	}
	return id, err
}

func (b bulk) summary(a *app, ids []string, reasons []error) error {
	var ok, failed []string
	for i, name := range b.names {
		if reasons[i] == nil {
			ok = append(ok, name)
			if b.async {
				a.t.Println(a.t.Style(term.Green, b.line(name)+"sent.") + " Request: " + ids[i])
			}
			continue
		}
		failed = append(failed, name+" ("+shortReason(reasons[i])+")")
	}
	if b.async && len(ok) > 0 {
		a.t.Printf("%s requests are sent. Check their status with: sky api status\n", strings.Fields(b.doing)[0])
	}
	if len(b.names) > 1 && !b.async {
		a.t.Println("\nSummary:")
		if len(ok) > 0 {
			a.t.Println("  " + a.t.Style(term.Green, "✓") + " Succeeded: " + strings.Join(ok, ", "))
		}
		if len(failed) > 0 {
			a.t.Println("  " + a.t.Style(term.Red, "✗") + " Failed: " + strings.Join(failed, ", "))
		}
	}
	if len(failed) > 0 {
		text := "Cluster(s) failed. See details above."
		if b.tip != "" {
			text += " " + b.tip
		}
		a.t.Println(text)
	}
	return nil
}

func shortReason(err error) string {
	text := strings.Join(strings.Fields(plainText(err.Error())), " ")
	if runes := []rune(text); len(runes) > 120 {
		return string(runes[:117]) + "..."
	}
	return format.OrDash(text)
}
