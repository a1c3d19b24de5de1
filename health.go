package sky

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
)

const (
	healthTimeout = 2500 * time.Millisecond
	healthTries   = 3
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
// kept for a few seconds. Errors: [*ConnectError], [*AuthError], [*VersionError],
// [*NotSkyError].
func (c *Client) Health(ctx context.Context) (*api.Health, error) {
	c.mu.Lock()
	kept, at := c.health, c.healthAt
	c.mu.Unlock()
	if kept != nil && time.Since(at) < healthKept {
		return kept, nil
	}
	var h *api.Health
	var err error
	for n := range healthTries {
		if h, err = c.Ping(ctx, healthTimeout); err == nil {
			break
		}
		if _, lost := errors.AsType[*ConnectError](err); !lost || refused(err) {
			return nil, err
		}
		if n+1 < healthTries {
			if err := sleep(ctx, 100*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.health, c.healthAt = h, time.Now()
	c.mu.Unlock()
	return h, nil
}

// Ping asks for the server's health once, without using what is known.
func (c *Client) Ping(ctx context.Context, timeout time.Duration) (*api.Health, error) {
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := c.do(short, http.MethodGet, "/api/health", nil, nil)
	if err != nil {
		if ctx.Err() == nil && short.Err() != nil {
			return nil, &ConnectError{c.Endpoint(), fmt.Errorf("no answer within %v", timeout)}
		}
		return nil, err
	}
	defer res.Body.Close()
	return c.readHealth(res)
}

func (c *Client) readHealth(res *http.Response) (*api.Health, error) {
	var h api.Health
	err := json.NewDecoder(res.Body).Decode(&h)
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

// SharesFiles reports whether the server reads the same files as this process,
// so that nothing needs uploading: both know the same instance id.
func (c *Client) SharesFiles(ctx context.Context) (bool, error) {
	h, err := c.Health(ctx)
	if err != nil {
		return false, err
	}
	in, err := ReadInstance(c.env.home())
	return err == nil && in.InstanceID != "" && in.InstanceID == h.InstanceID, nil
}
