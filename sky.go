// Package sky is the Go client of a sky API server: launch clusters and jobs,
// look at them, follow their logs, give them back.
//
//	c, err := sky.New(sky.Options{})
//	…
//	req, err := c.Launch(ctx, api.LaunchBody{Task: yaml, ClusterName: "train"})
//	…
//	res, err := req.Wait(ctx, os.Stdout, sky.StreamOptions{Follow: true})
//
// Every verb answers at once with a [Request], a future: its id is stored by the
// server before the call returns, so it survives the client, the connection and
// even the server. [Request.Stream] shows what it does, [Request.Get] waits for
// its result, [Request.Cancel] ends it. Failures of the server's side are
// [*api.Error].
package sky

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Options say which server to talk to, and as whom. The zero value is the local
// default server and the user of this machine.
type Options struct {
	// Endpoint is the server's URL; it may hold user:password for HTTP basic
	// authentication. Empty means DefaultEndpoint.
	Endpoint string
	// Token is a service account token ("sky_…").
	Token string
	// User is who asks when the server has no login. Empty fields are taken from
	// the environment and ~/.sky/user_hash.
	User api.User
	// HTTPClient, if not nil, replaces the default one. It must have no timeout:
	// requests may run for hours, and contexts bound them.
	HTTPClient *http.Client
	// Command is what the user typed, shown in LAST_USE columns.
	Command string
	// Config is laid over the server's configuration for each request.
	Config map[string]any
	// ConfigPath is the JSON list of the files Config came from.
	ConfigPath string
	// Environ is the environment to read; nil means os.Environ().
	Environ []string
	// Notify, if not nil, hears of answers that ask to come again later, in words for
	// people.
	Notify func(message string)
	// Trace, if not nil, hears of each HTTP call that was answered or failed. It may be
	// called concurrently.
	Trace func(HTTPCall)
	// Timeline makes requests write control lines [SpanEnd] into their logs.
	Timeline bool
	// Patience is how long a call that may be repeated is repeated while the server
	// does not answer; 0: 30 seconds, negative: not at all.
	Patience time.Duration
	// Waiting, if not nil, hears about once a second of calls that have waited for the
	// server for two seconds, and once that they do no more. It must be quick.
	Waiting func(Wait)
	// Revive, if not nil, starts the server again: it is called when nobody has
	// listened at the endpoint for a second, at most once a minute. The call that waits
	// ends with the error that it returns.
	Revive func(ctx context.Context) error
	// Vouch, if not nil, says whether what listens at an address of this machine may be
	// shown that the caller reads the token of the home folder's server.
	Vouch func(at netip.AddrPort) bool
}

// Client talks to one API server. Its methods may be called concurrently.
type Client struct {
	base     *url.URL // without user info
	basic    *url.Userinfo
	token    string
	http     *http.Client
	envelope func() api.Envelope
	notify   func(string)
	env      environ
	user     api.User
	cookies  []*http.Cookie
	patience time.Duration
	waits    waits
	revive   func(context.Context) error
	owner    owner

	reviving sync.Mutex
	revived  time.Time // guarded by reviving

	mu       sync.Mutex
	config   map[string]any // goes along with every request
	health   *api.Health
	healthAt time.Time
}

// New returns a client; nothing is sent yet.
func New(o Options) (*Client, error) {
	env := environ(o.Environ)
	if o.Environ == nil {
		env = environ(os.Environ())
	}
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint(env.Get)
	}
	base, err := ParseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if o.Token == "" {
		o.Token = env.Get("SKYPILOT_SERVICE_ACCOUNT_TOKEN")
	}
	if o.Token != "" && !strings.HasPrefix(o.Token, "sky_") {
		return nil, errors.New(`a service account token begins with "sky_"; the one given does not`)
	}
	user, err := identity(env, o.User)
	if err != nil {
		return nil, err
	}
	c := &Client{
		base: base, basic: base.User, token: o.Token, http: o.HTTPClient, notify: o.Notify,
		env: env, user: user, config: o.Config, patience: max(0, cmp.Or(o.Patience, outagePatience)), revive: o.Revive,
	}
	base.User = nil
	c.owner.home, c.owner.at, c.owner.vouch = env.home(), c.serverAt(), o.Vouch
	c.waits = waits{endpoint: c.Endpoint(), report: o.Waiting}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport()}
	}
	if o.Trace != nil {
		client := *c.http
		client.Transport = traced{cmp.Or(client.Transport, http.DefaultTransport), o.Trace}
		c.http = &client
	}
	if c.notify == nil {
		c.notify = func(string) {}
	}
	if c.token == "" {
		c.cookies = readCookies(env, base)
	}
	vars := requestEnv(env, user, c.Local())
	c.envelope = func() api.Envelope {
		c.mu.Lock()
		config := c.config
		c.mu.Unlock()
		e := api.Envelope{
			EnvVars: vars, Entrypoint: "sky", EntrypointCommand: o.Command,
			UsingRemoteAPIServer: !c.Local(), OverrideConfig: config, Timeline: o.Timeline,
		}
		if o.ConfigPath != "" {
			e.OverrideConfigPath = &o.ConfigPath
		}
		return e
	}
	return c, nil
}

// SetConfig changes what is laid over the server's configuration from now on.
func (c *Client) SetConfig(config map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config = config
}

// Endpoint is the server's URL without a password.
func (c *Client) Endpoint() string { return strings.TrimRight(c.base.String(), "/") }

// Local reports whether the endpoint is the one a server started on this
// machine by default has.
func (c *Client) Local() bool { return IsLocal(c.Endpoint(), c.env.Get) }

// dialed is the URL that is connected to: the default server listens at 127.0.0.1,
// whatever else "localhost" may mean.
func (c *Client) dialed() url.URL {
	u := *c.base
	if c.Local() {
		u.Host = "127.0.0.1:" + localPort(c.env.Get)
	}
	return u
}

// User is who the client asks as when the server has no login.
func (c *Client) User() api.User { return c.user }

// StreamURL is where a browser can watch a request.
func (c *Client) StreamURL(id string) string {
	return c.Endpoint() + "/api/stream?request_id=" + id
}

// DefaultEndpoint is where a local server listens: port 46580, or the one in
// SKY_API_PORT.
func DefaultEndpoint(getenv func(string) string) string {
	return "http://127.0.0.1:" + localPort(getenv)
}

// ParseEndpoint checks an endpoint as users write it.
func ParseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(s), "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no endpoint of an API server; it looks like http://HOST:%d or https://HOST", redactURL(s), api.DefaultPort)
	}
	return u, nil
}

// IsLocal reports whether endpoint is one of the addresses of the local default
// server. Other servers on this machine count as remote.
func IsLocal(endpoint string, getenv func(string) string) bool {
	endpoint = strings.TrimRight(endpoint, "/")
	for _, host := range [...]string{"127.0.0.1", "localhost", "0.0.0.0"} {
		if endpoint == "http://"+host+":"+localPort(getenv) {
			return true
		}
	}
	return false
}

func localPort(getenv func(string) string) string {
	if p := getenv("SKY_API_PORT"); p != "" {
		return p
	}
	return fmt.Sprint(api.DefaultPort)
}

func redactURL(s string) string {
	if u, err := url.Parse(s); err == nil {
		return u.Redacted()
	}
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return "…" + s[i:]
	}
	return s
}
