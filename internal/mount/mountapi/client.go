package mountapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// A Client speaks to the process that holds the mounts.
type Client struct {
	http *http.Client
}

// NewClient is a client of the socket at a path. It does no I/O.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		address, done, err := Address(socket)
		if err != nil {
			return nil, err
		}
		defer done()
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}
	return &Client{&http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConns: 2, IdleConnTimeout: time.Minute}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxAnswer bounds an answer.
const maxAnswer = 64 << 20

func call[Out any](ctx context.Context, c *Client, name string, in any) (out Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://mounts/v1/"+name, bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		return out, fmt.Errorf("the process that holds the mounts does not answer: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return out, fmt.Errorf("the process that holds the mounts broke off: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		e := &Error{}
		if json.Unmarshal(data, e) != nil || e.Code == "" {
			e = &Error{Code: Internal, Message: fmt.Sprintf("the process that holds the mounts answers %s", answer.Status)}
		}
		return out, e
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("the answer of the process that holds the mounts: %w", err)
	}
	return out, nil
}

// None is what calls take or give that have nothing to say.
type None struct{}

// Mount mounts a bucket and returns when it can be used. What is mounted already with the
// same spec is kept, with the new credentials; with another one, it is replaced if no
// file is open, or else refused with InUse.
func (c *Client) Mount(ctx context.Context, r MountRequest) (MountAnswer, error) {
	return call[MountAnswer](ctx, c, "mount", r)
}

// Unmount ends a mount. That nothing is mounted is success.
func (c *Client) Unmount(ctx context.Context, r UnmountRequest) error {
	_, err := call[None](ctx, c, "unmount", r)
	return err
}

// Renew replaces the credentials of a mount.
func (c *Client) Renew(ctx context.Context, r CredentialsRequest) error {
	_, err := call[None](ctx, c, "credentials", r)
	return err
}

// Flush waits until what was written is in the bucket. NotStored names files that never
// will be as things are, TimedOut those that are not yet. Of a mount that is not there,
// NotMounted names what its cache has that the bucket does not; no files: nothing.
func (c *Client) Flush(ctx context.Context, r FlushRequest) (FlushAnswer, error) {
	return call[FlushAnswer](ctx, c, "flush", r)
}

// Stats are about all mounts.
func (c *Client) Stats(ctx context.Context) (StatsAnswer, error) {
	return call[StatsAnswer](ctx, c, "stats", None{})
}

// Queue lists what is not in the bucket yet.
func (c *Client) Queue(ctx context.Context) (QueueAnswer, error) {
	return call[QueueAnswer](ctx, c, "queue", None{})
}

// Health asks whether the process lives.
func (c *Client) Health(ctx context.Context) (HealthAnswer, error) {
	return call[HealthAnswer](ctx, c, "health", None{})
}
