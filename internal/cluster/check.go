package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config"
)

// Check tries the credentials of providers, tells about it on out, and returns
// what each enabled one can be used for. No names select all; c says which may be
// used at all.
func Check(ctx context.Context, providers *cloud.Registry, c *config.Config, names []string, verbose bool, out io.Writer) (map[string][]string, error) {
	selected := providers.All()
	if len(names) > 0 {
		selected = nil
		for _, name := range names {
			p, ok := providers.Get(strings.ToLower(name))
			if !ok {
				e := &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("unknown infrastructure %q; known: %s", name, strings.Join(nameList(providers), ", "))}
				if c, ok := facts.Find(name); ok && c.Rents() {
					e.Message = fmt.Sprintf("This version of sky cannot rent from %s yet; it can from: %s.", c.Display, strings.Join(nameList(providers), ", "))
					if c.Priced() {
						e.Hint = fmt.Sprintf("What a task would cost there: sky launch --dryrun --assume-enabled %s TASK.yaml", c.Name)
					}
				}
				return nil, e
			}
			selected = append(selected, p)
		}
	}
	// All at once, told in order: one that is slow keeps nobody waiting twice.
	answers := make([]chan checked, len(selected))
	for i, p := range selected {
		if ok, _ := c.CloudUse(c.ActiveWorkspace(), p.Name()); !ok {
			continue
		}
		answers[i] = make(chan checked, 1)
		go func() { answers[i] <- checkOne(ctx, p) }()
	}
	report := map[string][]string{}
	var enabled, notSetUp []string
	for i, p := range selected {
		if answers[i] == nil {
			_, why := c.CloudUse(c.ActiveWorkspace(), p.Name())
			fmt.Fprintf(out, "  %s: disabled\n    Reason [compute]: %s\n", p.DisplayName(), why)
			continue
		}
		a := <-answers[i]
		if auth, ok := errors.AsType[*cloud.AuthError](a.err); ok && auth.NotSetUp && len(names) == 0 && !verbose {
			notSetUp = append(notSetUp, p.DisplayName())
			continue
		}
		a.tell(out, p, verbose)
		if a.err == nil {
			report[p.DisplayName()] = []string{"compute"}
			enabled = append(enabled, p.DisplayName())
		}
	}
	if len(notSetUp) > 0 {
		fmt.Fprintf(out, "%s\n    How to: sky check NAME, or of all: sky check -v\n", listed("  Not set up: ", notSetUp))
	}
	if len(enabled) == 0 {
		fmt.Fprintln(out, "\n  No infra to check/enabled.")
		return report, nil
	}
	fmt.Fprintf(out, "\n🎉 Enabled infra 🎉\n  %s\n", strings.Join(enabled, "\n  "))
	return report, nil
}

func nameList(r *cloud.Registry) []string {
	var names []string
	for _, p := range r.All() {
		names = append(names, p.Name())
	}
	return names
}

// checked is what a look at a provider's credentials showed.
type checked struct {
	who     cloud.Identity
	err     error
	lack    cloud.Lack
	lackErr error // why it is not known what is lacking
}

// checkOne tries a provider's credentials, and finds out which permissions are missing
// where that can be told and is of interest.
func checkOne(ctx context.Context, p cloud.Provider) (a checked) {
	a.who, a.err = p.Check(ctx)
	var refused *cloud.PermissionError
	if a.err != nil && !errors.As(a.err, &refused) {
		return a
	}
	if reader, ok := cloud.As[cloud.PermissionReader](p); ok {
		a.lack, a.lackErr = reader.Lacking(ctx)
	}
	return a
}

func (a *checked) tell(out io.Writer, p cloud.Provider, verbose bool) {
	if a.err != nil {
		fmt.Fprintf(out, "  %s: disabled\n    Reason [compute]: %v\n", p.DisplayName(), a.err)
		var auth *cloud.AuthError
		if errors.As(a.err, &auth) && auth.Fix != "" {
			fmt.Fprintf(out, "    To enable it: %s\n", auth.Fix)
		}
	} else {
		fmt.Fprintf(out, "  %s: enabled [compute]\n", p.DisplayName())
		if verbose && len(a.who) > 0 {
			fmt.Fprintf(out, "    Activated account: %s\n", a.who[0])
		}
	}
	switch {
	case a.lackErr != nil:
		fmt.Fprintf(out, "    Hint [compute]: which permissions are missing could not be found out: %v\n", a.lackErr)
	case len(a.lack.Permissions) > 0:
		fmt.Fprintf(out, "    Hint [compute]: these permissions are missing: %s\n    To grant them: %s\n", strings.Join(a.lack.Permissions, ", "), a.lack.Fix)
	}
}

// listed is a list of names in lines that fit a screen of 80 columns.
func listed(head string, names []string) string {
	var b strings.Builder
	line := head
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		if i > 0 && len(line)+len(name) >= 80 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = "    "
		}
		line += name + " "
	}
	return b.String() + strings.TrimRight(line, " ")
}
