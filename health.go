package sky

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
)

const (
	healthTimeout = 5 * time.Second // of one try
	healthKept    = 5 * time.Second
)

// VersionError means that client and server are too far apart to talk.
type VersionError struct {
	Endpoint       string
	Server, Client string // product versions
	ServerAPI      int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the API server at %s runs version %s (API %d), which this client, version %s (API %d, at least %d), cannot talk to",
		e.Endpoint, e.Server, e.ServerAPI, e.Client, api.Version, api.MinVersion)
}

// NotSkyError means that something answers at the endpoint but it is no sky API
// server.
type NotSkyError struct {
	Endpoint string
	Reason   string
}

func (e *NotSkyError) Error() string {
	return fmt.Sprintf("what answers at %s is not a sky API server: %s", e.Endpoint, e.Reason)
}

// Health asks the server how it is and checks that both can talk. The answer is
// kept for a few seconds. A server that does not answer is waited for. Errors:
// [*ConnectError], [*AuthError], [*VersionError], [*NotSkyError].
func (c *Client) Health(ctx context.Context) (*api.Health, error) { return c.healthy(ctx, false) }

// HealthIfListening is Health, except that a server that does not take
// connections is an error at once.
func (c *Client) HealthIfListening(ctx context.Context) (*api.Health, error) {
	return c.healthy(ctx, true)
}

func (c *Client) healthy(ctx context.Context, listening bool) (*api.Health, error) {
	c.mu.Lock()
	kept, at := c.health, c.healthAt
	c.mu.Unlock()
	if kept != nil && time.Since(at) < healthKept {
		return kept, nil
	}
	o := outage{c: c}
	defer o.over()
	for {
		began := time.Now()
		h, err := c.pingAloud(ctx, &o)
		if err == nil {
			c.mu.Lock()
			c.health, c.healthAt = h, time.Now()
			c.mu.Unlock()
			return h, nil
		}
		if listening && refused(err) {
			return nil, err
		}
		if s, ok := errors.AsType[*silentError](err); ok && !o.since.IsZero() {
			s.quiet = time.Since(o.since)
		} else if ok {
			s.quiet = time.Since(began)
		}
		if err := o.again(ctx, err, true); err != nil {
			return nil, err
		}
	}
}

// pingAloud is Ping with the usual time limit, and reports that it waits.
func (c *Client) pingAloud(ctx context.Context, o *outage) (*api.Health, error) {
	since := o.since
	if since.IsZero() {
		since = time.Now()
	}
	w := c.waits.begin(since, "no answer")
	defer w.end()
	return c.Ping(ctx, healthTimeout)
}

// Ping asks for the server's health once, without using what is known.
func (c *Client) Ping(ctx context.Context, timeout time.Duration) (*api.Health, error) {
	h, _, err := c.ask(ctx, timeout, nil)
	return h, err
}

// ask is Ping with further headers. It returns those of the answer, too.
func (c *Client) ask(ctx context.Context, timeout time.Duration, more http.Header) (*api.Health, http.Header, error) {
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := c.request(short, http.MethodGet, "/api/health", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, more)
	for {
		res, err := c.send(req)
		if err != nil {
			if ctx.Err() == nil && short.Err() != nil {
				return nil, nil, &ConnectError{c.Endpoint(), &silentError{timeout}}
			}
			return nil, nil, err
		}
		h, err := c.readHealth(res)
		res.Body.Close()
		// Health is asked to everybody, who must log in as well.
		if _, locked := errors.AsType[*AuthError](err); !locked || !c.knownAnew(http.StatusUnauthorized, req.Header) {
			return h, res.Header, err
		}
	}
}

func (c *Client) readHealth(res *http.Response) (*api.Health, error) {
	var body struct {
		api.Health
		Detail string `json:"detail"`
	}
	err := json.NewDecoder(res.Body).Decode(&body)
	h := body.Health
	serverAPI, _ := strconv.Atoi(res.Header.Get(api.HeaderAPIVersion))
	if serverAPI == 0 {
		serverAPI, _ = strconv.Atoi(h.APIVersion)
	}
	version := h.Version
	if version == "" {
		version = res.Header.Get(api.HeaderVersion)
	}
	tooFar := &VersionError{Endpoint: c.Endpoint(), Server: version, Client: api.ProductVersion, ServerAPI: serverAPI}
	switch {
	case res.StatusCode == http.StatusUnauthorized || h.Status == "needs_auth":
		return nil, &AuthError{c.Endpoint()}
	case res.StatusCode == http.StatusBadRequest && serverAPI > 0, h.Status == "version_mismatch":
		return nil, tooFar
	case failureOf(&StatusError{Code: res.StatusCode}) == unsent, failureOf(&StatusError{Code: res.StatusCode}) == lost:
		return nil, &StatusError{Code: res.StatusCode} // of a proxy that has no server to ask
	case res.StatusCode == http.StatusTooManyRequests && body.Detail != "":
		return nil, &StatusError{Code: res.StatusCode, Detail: body.Detail}
	case res.StatusCode != http.StatusOK:
		return nil, &NotSkyError{c.Endpoint(), fmt.Sprintf("it answers %s", res.Status)}
	case err != nil:
		return nil, &NotSkyError{c.Endpoint(), "its health page is not JSON"}
	case h.Status != "healthy":
		return nil, &NotSkyError{c.Endpoint(), fmt.Sprintf("its status is %q", h.Status)}
	case serverAPI == 0:
		return nil, &NotSkyError{c.Endpoint(), "it does not say which version it speaks"}
	case serverAPI < api.MinVersion:
		return nil, tooFar
	}
	return &h, nil
}

// An Instance is what a server that was started on this machine writes to
// ~/.sky/api_server/instance.json.
type Instance struct {
	PID        int    `json:"pid"`
	Start      string `json:"start"` // tells the process from a later one with the same pid
	InstanceID string `json:"instance_id"`
	Endpoint   string `json:"endpoint"`
	BuildID    string `json:"build_id"`
}

// InstanceFile is where a local server describes itself.
func InstanceFile(home string) string {
	return filepath.Join(home, ".sky", "api_server", "instance.json")
}

// ReadInstance reads the instance file below home.
func ReadInstance(home string) (Instance, error) {
	var in Instance
	b, err := os.ReadFile(InstanceFile(home))
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return in, fmt.Errorf("%s: %w", InstanceFile(home), err)
	}
	return in, nil
}

// SharesFiles reports whether the server reads the same files as this process and
// lets this caller's tasks name them, so that nothing needs uploading: both know
// the same instance id.
func (c *Client) SharesFiles(ctx context.Context) (bool, error) {
	h, err := c.Health(ctx)
	if err != nil || h.UploadFiles {
		return false, err
	}
	in, err := ReadInstance(c.env.home())
	return err == nil && in.InstanceID != "" && in.InstanceID == h.InstanceID, nil
}
