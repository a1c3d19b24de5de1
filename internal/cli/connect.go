package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/buildid"
	"github.com/skypilot-go/sky/internal/cli/localserver"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// endpoint is the API server to talk to and where that was said.
func (a *app) endpoint() (url, source string, err error) {
	s, err := a.config()
	if err != nil {
		return "", "", err
	}
	if s.endpoint != "" {
		return strings.TrimRight(s.endpoint, "/"), s.endpointFrom, nil
	}
	return sky.DefaultEndpoint(a.env), "", nil
}

// open makes the client without talking to the server.
func (a *app) open() (*sky.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	endpoint, _, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	s, err := a.config()
	if err != nil {
		return nil, err
	}
	a.client, err = sky.New(sky.Options{
		Trace: a.traceCalls(endpoint), Timeline: a.timeline != nil,
		Endpoint: endpoint, Token: s.token, Command: a.typed, Config: s.forRequest, ConfigPath: s.paths,
		Environ: a.environ, Patience: a.p.Patience, Notify: func(m string) { a.t.Warn("%s", m) },
		Waiting: (&waiting{t: a.t}).show,
		Revive:  a.revive,
		Vouch:   localserver.Vouch,
	})
	return a.client, err
}

// traceCalls hears of each call to the server; nil: nobody wants to.
func (a *app) traceCalls(endpoint string) func(sky.HTTPCall) {
	debug := a.debug()
	if !debug && a.timeline == nil {
		return nil
	}
	return func(c sky.HTTPCall) {
		if debug {
			a.t.Note("debug: %s %s%s: %d after %v", c.Method, endpoint, c.Path, c.Status, c.Took.Round(time.Millisecond))
		}
		a.timeline.call(c)
	}
}

// revive starts a server on this machine that died while the command talked to
// it.
func (a *app) revive(ctx context.Context) error {
	if a.health == nil || !a.client.Local() {
		return nil
	}
	local, err := a.local(a.client)
	if err != nil {
		return err
	}
	if local.Client, err = a.clientFor(a.client.Endpoint(), ""); err != nil { // one that revives nothing
		return err
	}
	local.Starting = func() {
		a.t.Note("The API server on this machine has died (log: %s); starting it again…", localserver.LogFile(a.home))
	}
	return local.Revive(ctx)
}

// connect makes the client and sees to it that the server answers; a local
// server is started when there is none.
func (a *app) connect(ctx context.Context) (*sky.Client, error) {
	c, err := a.open()
	if err != nil {
		return nil, err
	}
	if a.health != nil {
		return c, nil
	}
	if !c.Local() {
		if a.health, err = c.Health(ctx); err != nil {
			return nil, a.explainRemote(err)
		}
		a.warnDegraded(a.health)
		return c, nil
	}
	var spin *term.Spinner
	local, err := a.local(c)
	if err != nil {
		return nil, err
	}
	local.Starting = func() {
		if a.t.ErrTTY {
			spin = a.t.Spin("[bold cyan]Starting the API server on this machine[/]")
		} else {
			a.t.Note("Starting the API server on this machine…")
		}
	}
	h, started, err := local.Ensure(ctx)
	if spin != nil {
		spin.Stop()
	}
	if err != nil {
		return nil, err
	}
	a.health = h
	defer a.warnDegraded(h)
	if started {
		a.t.Note("%s The API server runs at %s (log: %s)", a.t.ErrStyle(term.Green, "✓"), c.Endpoint(), localserver.LogFile(a.home))
	} else {
		a.warnOtherBuild(h)
	}
	return c, nil
}

func (a *app) local(c *sky.Client) (*localserver.Local, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the sky program: %w", err)
	}
	_, chosen, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	return &localserver.Local{
		Chosen: chosen != "",
		Home:   a.home, Client: c, Endpoint: c.Endpoint(), Environ: a.environ,
		Command: []string{exe, "api", "start", "--foreground"},
	}, nil
}

// able refuses a command that the server cannot carry out, before it plans, asks and
// uploads. name is the request that the command would send.
func (a *app) able(ctx context.Context, name, what string) error {
	if _, err := a.connect(ctx); err != nil {
		return err
	}
	if slices.Contains(a.health.NotYet, name) {
		return &api.Error{Type: api.ErrNotSupported, Message: what + " cannot be used yet with this version of the API server; nothing was changed."}
	}
	return nil
}

// warnDegraded reports that the server accepts only some calls.
func (a *app) warnDegraded(h *api.Health) {
	if h.Degraded != "" {
		a.t.Warn("The API server only shows, stops and ends what exists: %s.", h.Degraded)
	}
}

// warnOtherBuild warns when the server that runs is made from another source than
// this binary.
func (a *app) warnOtherBuild(h *api.Health) {
	switch {
	case h.Version != "" && h.Version != api.ProductVersion:
		a.t.Warn("The API server runs version %s, this is version %s. To use one version: sky api stop && sky api start", h.Version, api.ProductVersion)
	case h.BuildID == "" || h.BuildID == "unknown" || h.BuildID == buildid.ID() || buildid.ID() == "unknown":
	case !buildid.Same(h.BuildID, h.BuildCode, buildid.ID(), buildid.Code()):
		a.t.Warn("The API server runs another build of sky (%s) than this one (%s). To use one: sky api stop && sky api start", h.BuildID, buildid.ID())
	}
}

// lostAdvice says what to do about a server that does not answer; "" for other
// errors.
func (a *app) lostAdvice(err error) string {
	if _, lost := errors.AsType[*sky.ConnectError](err); !lost || a.client == nil {
		return ""
	}
	if !a.client.Local() {
		endpoint, from, _ := a.endpoint()
		return fmt.Sprintf("The endpoint %s is set by %s; check the address and your network, or unset it to use a server on this machine", endpoint, from)
	}
	local, lerr := a.local(a.client)
	if lerr != nil {
		return ""
	}
	return local.Advice()
}

func (a *app) explainRemote(err error) error {
	if v, ok := errors.AsType[*sky.VersionError](err); ok {
		return fmt.Errorf("%w. Use a client of the server's version, or ask its administrator for an upgrade", v)
	}
	return err
}
