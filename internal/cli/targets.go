package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/similar"
)

// selection says which clusters a command is about.
type selection struct {
	verb          string // down, stop, autostop, start
	names         []string
	all, allUsers bool
}

// check refuses a selection of nothing.
func (s selection) check() error {
	if len(s.names) > 0 || s.all || s.allUsers {
		return nil
	}
	return usagef("`sky %s` needs a cluster name or pattern (see `sky status`), -a/--all for all your clusters, or -u/--all-users for those of everybody.", s.verb)
}

// targets picks the clusters out of all records that the server gave for the
// selection. Controllers are picked only by their exact name.
func (s selection) targets(records []api.StatusRecord) (picked []api.StatusRecord) {
	for _, r := range records {
		if controllerOf(r.Name) != "" && (s.all || s.allUsers || !slices.Contains(s.names, r.Name)) {
			continue
		}
		picked = append(picked, r)
	}
	return picked
}

// controllerProblem says why controllers among the picked clusters cannot be
// handled together with others; "" if they can.
func controllerProblem(doing string, picked []api.StatusRecord) string {
	var controllers, others []string
	for _, r := range picked {
		if controllerOf(r.Name) != "" {
			controllers = append(controllers, r.Name)
		} else {
			others = append(others, r.Name)
		}
	}
	switch {
	case len(controllers) == 0:
		return ""
	case len(others) > 0:
		return fmt.Sprintf("%s controller(s) %s with other cluster(s) %s is currently not supported.\nPlease omit the controller(s) %s.",
			doing, format.Quote(controllers), format.Quote(others), format.Quote(controllers))
	case len(controllers) > 1:
		return fmt.Sprintf("%s multiple controllers %s is currently not supported.\nPlease specify only one controller.", doing, format.Quote(controllers))
	case doing != "Terminating":
		return fmt.Sprintf("%s controller(s) %s is currently not supported.", doing, format.Quote(controllers))
	}
	return ""
}

// find asks the server for the selected clusters and picks the targets. With
// none it says so and returns nothing.
func (a *app) find(ctx context.Context, c *sky.Client, s selection) ([]api.StatusRecord, error) {
	if (s.all || s.allUsers) && len(s.names) > 0 {
		a.t.Warn("Both --all and cluster(s) specified for `sky %s`. Letting --all take effect.", s.verb)
		s.names = nil
	}
	records, err := a.listClusters(ctx, c, s.names, false, s.allUsers || len(s.names) > 0)
	if err != nil {
		return nil, err
	}
	missing := notFound(s.names, records)
	if len(missing) > 0 {
		a.t.Println("Cluster(s) not found: " + strings.Join(missing, ", ") + "." + didYouMean(a.similarClusters(ctx, c, missing)))
	}
	picked := s.targets(records)
	if len(picked) == 0 {
		tip := "Cluster(s) not found (tip: see `sky status`)."
		if s.verb == "start" {
			tip += " Do you mean to use `sky launch` to provision a new cluster?"
		}
		a.t.Println(tip)
		if slices.ContainsFunc(s.names, func(name string) bool { return !isPattern(name) }) {
			return nil, exitError(1) // nothing was done for a name
		}
	}
	return picked, nil
}

func namesOf(records []api.StatusRecord) []string {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Name
	}
	return names
}

// countedNames is "2 clusters: a, b".
func countedNames(noun string, names []string) string {
	return format.Count(len(names), noun) + ": " + strings.Join(names, ", ")
}

// similarClusters lists the clusters that were probably meant by names that no
// cluster has. Patterns are no misspelt names.
func (a *app) similarClusters(ctx context.Context, c *sky.Client, missing []string) []string {
	missing = slices.DeleteFunc(slices.Clone(missing), isPattern)
	if len(missing) == 0 {
		return nil
	}
	records, err := a.listClusters(ctx, c, nil, false, true)
	if err != nil {
		return nil // what is wrong can be said without
	}
	var near []string
	for _, name := range missing {
		for _, n := range similar.Names(name, namesOf(records)) {
			if n != name && !slices.Contains(near, n) { // it may have come meanwhile
				near = append(near, n)
			}
		}
	}
	return near
}
