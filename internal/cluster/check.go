package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// Checker tries credentials.
type Checker struct {
	Providers *cloud.Registry
	Config    *config.Config // says which clouds may be used at all, and for what
	// Store tries the credentials of a cloud's object store; an error as of Provider.Check.
	Store func(ctx context.Context, c *config.Config, cloud string) error
	// Verbose names the accounts, and explains also what nobody has set up.
	Verbose bool
}

// Check tries the credentials of what is named, writes what came of it to out, and returns
// what each cloud that can be used is good for. Names are those of clouds, of contexts and
// pools ("k8s/CONTEXT", "ssh/POOL"), and "compute" and "storage" for that of all clouds, or of
// those that are named beside. No names are all clouds.
func (k Checker) Check(ctx context.Context, names []string, out io.Writer) (map[string][]string, error) {
	selected, err := k.selected(names)
	if err != nil {
		return nil, err
	}
	// All at once, reported in order: one that is slow keeps nobody waiting twice.
	done := make([]chan struct{}, len(selected))
	for i, c := range selected {
		done[i] = make(chan struct{})
		go func() {
			defer close(done[i])
			c.try(ctx, k)
		}()
	}
	report := map[string][]string{}
	var enabled, notSetUp []string
	for i, c := range selected {
		<-done[i]
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if c.notSetUp() && !c.named && !k.Verbose {
			notSetUp = append(notSetUp, c.display)
			continue
		}
		c.tell(out, k.Verbose)
		if uses := c.uses(); len(uses) > 0 {
			report[c.display] = uses
			enabled = append(enabled, c.display+" ["+strings.Join(uses, ", ")+"]")
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

// checked is a cloud, and what came of trying its credentials.
type checked struct {
	*facts.Cloud
	display        string
	provider       cloud.Provider // nil: it rents no machines, or they are not asked about
	store          bool           // whether it has object stores that are asked about
	only           string         // the region that is asked about; "": all
	named          bool
	who            cloud.Identity
	places         []cloud.CheckedPlace
	compute, space error // why it cannot be used for that
	lack           cloud.Lack
	lackErr        error // why it is not known what is lacking
}

// selected are the clouds that names stand for.
func (k Checker) selected(names []string) ([]*checked, error) {
	machines, space := true, true
	var clouds []string
	for _, name := range names {
		switch strings.ToLower(name) {
		case config.Compute:
			space = slices.Contains(names, config.Storage)
		case config.Storage:
			machines = slices.Contains(names, config.Compute)
		default:
			clouds = append(clouds, name)
		}
	}
	var out []*checked
	add := func(c *facts.Cloud, only string, named bool) {
		p, _ := k.Providers.Get(c.Name)
		one := &checked{Cloud: c, display: c.Display, only: only, named: named, store: space && only == "" && k.Store != nil && c.Stores()}
		if p != nil {
			one.display = p.DisplayName()
		}
		if machines {
			one.provider = p
		}
		if one.provider != nil || one.store && (p != nil || c.StoresOnly) {
			out = append(out, one)
		}
	}
	if len(clouds) == 0 {
		for _, p := range k.Providers.All() {
			add(facts.Of(p.Name()), "", false)
		}
		for _, c := range facts.All() {
			if c.StoresOnly {
				add(c, "", false)
			}
		}
	}
	for _, name := range clouds {
		c, only, err := k.find(name)
		if err != nil {
			return nil, err
		}
		before := len(out)
		if add(c, only, true); len(out) == before {
			return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%s has no object stores of its own.", c.Display)}
		}
	}
	return out, nil
}

// find is the cloud, and the region, that a name stands for.
func (k Checker) find(name string) (c *facts.Cloud, region string, err error) {
	in, err := task.ParseInfra(name)
	if err != nil || in.Cloud == "" {
		if c, ok := facts.Find(name); ok && c.StoresOnly {
			return c, "", nil
		}
		for _, c := range facts.All() {
			if c.StoresOnly && slices.Contains(c.Schemes, strings.ToLower(name)) {
				return c, "", nil
			}
		}
		in.Cloud = strings.ToLower(name)
	}
	p, ok := k.Providers.Get(in.Cloud)
	if !ok {
		e := &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("unknown infrastructure %q; known: %s", name, strings.Join(k.known(), ", "))}
		if c, ok := facts.Find(in.Cloud); ok && c.Rents() {
			e.Message = fmt.Sprintf("This version of sky cannot rent from %s yet; it can from: %s.", c.Display, strings.Join(k.known(), ", "))
			if c.Priced() {
				e.Hint = fmt.Sprintf("What a task would cost there: sky launch --dryrun --assume-enabled %s TASK.yaml", c.Name)
			}
		}
		return nil, "", e
	}
	if in.Region != "" {
		if _, ok := cloud.As[cloud.PlaceChecker](p); !ok {
			return nil, "", &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The credentials of %s are the same in all regions: sky check %s", p.DisplayName(), in.Cloud)}
		}
	}
	return facts.Of(in.Cloud), in.Region, nil
}

// known are the names that find takes.
func (k Checker) known() []string {
	var names []string
	for _, p := range k.Providers.All() {
		names = append(names, p.Name())
	}
	for _, c := range facts.All() {
		if c.StoresOnly && k.Store != nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// A disabledError is that the configuration does not let something be used.
type disabledError struct{ why string }

func (e *disabledError) Error() string { return e.why }

// try tries the credentials.
func (c *checked) try(ctx context.Context, k Checker) {
	may := func(use string) error {
		if ok, why := k.Config.CloudUseFor(k.Config.ActiveWorkspace(), c.Name, use); !ok {
			return &disabledError{why}
		}
		return nil
	}
	if c.provider != nil {
		if c.compute = may(config.Compute); c.compute == nil {
			c.tryCompute(ctx, k)
		}
	}
	if !c.store {
		return
	}
	if c.space = may(config.Storage); c.space != nil {
		return
	}
	if p, ok := k.Providers.Get(c.Name); ok && !c.StoreKeys {
		err := c.compute
		if c.provider == nil || isDisabled(err) {
			_, err = p.Check(ctx)
		}
		if auth, ok := errors.AsType[*cloud.AuthError](err); ok {
			c.space = auth
			return
		}
	}
	c.space = k.Store(ctx, k.Config, c.Name)
}

func isDisabled(err error) bool {
	_, ok := errors.AsType[*disabledError](err)
	return ok
}

// tryCompute tries the credentials for machines, and finds out which permissions are missing
// where that can be found out and is of interest.
func (c *checked) tryCompute(ctx context.Context, k Checker) {
	if p, ok := cloud.As[cloud.PlaceChecker](c.provider); ok {
		c.places, c.compute = p.CheckPlaces(ctx, c.only, k.Config.Sections(config.Scope{Cloud: c.Name, Workspace: k.Config.ActiveWorkspace()}))
		for _, at := range c.places {
			if at.Err == nil {
				c.compute = nil
				if at.Who != "" {
					c.who = append(c.who, at.Who)
				}
				break
			}
			c.compute = at.Err
		}
	} else {
		c.who, c.compute = c.provider.Check(ctx)
	}
	var refused *cloud.PermissionError
	if c.compute != nil && !errors.As(c.compute, &refused) {
		return
	}
	if reader, ok := cloud.As[cloud.PermissionReader](c.provider); ok {
		c.lack, c.lackErr = reader.Lacking(ctx)
	}
}

// uses is what the cloud can be used for.
func (c *checked) uses() []string {
	var uses []string
	if c.provider != nil && c.compute == nil {
		uses = append(uses, config.Compute)
	}
	if c.store && c.space == nil {
		uses = append(uses, config.Storage)
	}
	return uses
}

// notSetUp reports whether nobody has set up any of it.
func (c *checked) notSetUp() bool {
	none := func(err error) bool {
		auth, ok := errors.AsType[*cloud.AuthError](err)
		return ok && auth.NotSetUp
	}
	return (c.provider == nil || none(c.compute)) && (!c.store || none(c.space))
}

func (c *checked) tell(out io.Writer, verbose bool) {
	if uses := c.uses(); len(uses) > 0 {
		fmt.Fprintf(out, "  %s: enabled [%s]\n", c.display, strings.Join(uses, ", "))
	} else {
		fmt.Fprintf(out, "  %s: disabled\n", c.display)
	}
	if verbose && len(c.who) > 0 {
		fmt.Fprintf(out, "    Activated account: %s\n", c.who[0])
	}
	fix := ""
	reason := func(use string, err error) {
		if err == nil {
			return
		}
		fmt.Fprintf(out, "    Reason [%s]: %v\n", use, err)
		if auth, ok := errors.AsType[*cloud.AuthError](err); ok && auth.Fix != "" && auth.Fix != fix {
			fix = auth.Fix
			fmt.Fprintf(out, "    To enable it: %s\n", fix)
		}
	}
	if len(c.places) > 1 || c.only != "" || len(c.places) > 0 && verbose {
		c.tree(out)
	} else {
		reason(config.Compute, c.compute)
	}
	if c.space == nil || c.compute == nil || c.space.Error() != c.compute.Error() {
		reason(config.Storage, c.space)
	}
	switch {
	case c.lackErr != nil:
		fmt.Fprintf(out, "    Hint [compute]: which permissions are missing could not be found out: %v\n", c.lackErr)
	case len(c.lack.Permissions) > 0:
		fmt.Fprintf(out, "    Hint [compute]: these permissions are missing: %s\n    To grant them: %s\n", strings.Join(c.lack.Permissions, ", "), c.lack.Fix)
	}
}

// tree lists the contexts or pools.
func (c *checked) tree(out io.Writer) {
	for i, at := range c.places {
		branch := "├──"
		if i == len(c.places)-1 {
			branch = "└──"
		}
		says := "enabled"
		if at.Err != nil {
			says = "disabled. Reason: " + at.Err.Error()
		}
		fmt.Fprintf(out, "    %s %s: %s\n", branch, c.RegionName(at.Region), says)
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
