package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
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
				return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%q is no infrastructure that this version of sky knows; it knows: %s.", name, strings.Join(nameList(providers), ", "))}
			}
			selected = append(selected, p)
		}
	}
	report := map[string][]string{}
	var enabled []string
	for _, p := range selected {
		if ok, why := c.CloudUse(c.ActiveWorkspace(), p.Name()); !ok {
			fmt.Fprintf(out, "  %s: disabled\n    Reason [compute]: %s\n", p.DisplayName(), why)
			continue
		}
		who, err := p.Check(ctx)
		if err != nil {
			fmt.Fprintf(out, "  %s: disabled\n    Reason [compute]: %v\n", p.DisplayName(), err)
			var auth *cloud.AuthError
			if errors.As(err, &auth) && auth.Fix != "" {
				fmt.Fprintf(out, "    To enable it: %s\n", auth.Fix)
			}
			var refused *cloud.PermissionError
			if errors.As(err, &refused) {
				lacking(ctx, p, out)
			}
			continue
		}
		fmt.Fprintf(out, "  %s: enabled [compute]\n", p.DisplayName())
		if verbose && len(who) > 0 {
			fmt.Fprintf(out, "    Activated account: %s\n", who[0])
		}
		lacking(ctx, p, out)
		report[p.DisplayName()] = []string{"compute"}
		enabled = append(enabled, p.DisplayName())
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

// lacking tells which permissions are missing, where that can be found out.
func lacking(ctx context.Context, p cloud.Provider, out io.Writer) {
	reader, ok := cloud.As[cloud.PermissionReader](p)
	if !ok {
		return
	}
	switch lack, err := reader.Lacking(ctx); {
	case err != nil:
		fmt.Fprintf(out, "    Hint [compute]: which permissions are missing could not be found out: %v\n", err)
	case len(lack.Permissions) > 0:
		fmt.Fprintf(out, "    Hint [compute]: these permissions are missing: %s\n    To grant them: %s\n", strings.Join(lack.Permissions, ", "), lack.Fix)
	}
}
