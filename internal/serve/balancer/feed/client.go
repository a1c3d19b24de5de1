package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// A Target is a balancer.
type Target interface {
	Apply(balancerapi.Table) error
	Table() balancerapi.Table
	Report(have map[string]int64) balancerapi.Report
	Waiting() <-chan struct{}
}

// A Client gets tables for a balancer and sends its reports.
type Client struct {
	Endpoint string        // of the server, such as https://sky.example.com
	Token    func() string // of an account that may; nil: none
	HTTP     *http.Client  // without a time-out of its own
	Logger   *slog.Logger
	Every    time.Duration // between reports; 0: 1 s

	mu   sync.Mutex
	have map[string]int64
}

const (
	firstPause = 100 * time.Millisecond // after a call that failed
	maxPause   = 2 * time.Second
)

// Run keeps a balancer at the latest table until ctx ends, and sends a last report.
// While the server is away the balancer goes on as it is.
func (c *Client) Run(ctx context.Context, b Target) {
	var g sync.WaitGroup
	g.Go(func() { c.pull(ctx, b) })
	c.reports(ctx, b)
	g.Wait()
}

// pull gets tables.
func (c *Client) pull(ctx context.Context, b Target) {
	pause, away := firstPause, false
	for ctx.Err() == nil {
		err := c.next(ctx, b)
		if err == nil {
			if away {
				c.Logger.Info("server answers again")
			}
			pause, away = firstPause, false
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if !away {
			c.Logger.Warn("no table from the server; the last one stays", "err", err)
			away = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// next waits for a table that is newer than the balancer's.
func (c *Client) next(ctx context.Context, b Target) error {
	ctx, cancel := context.WithTimeout(ctx, pollTime+15*time.Second)
	defer cancel()
	q := url.Values{}
	if t := b.Table(); t.Services != nil {
		q.Set("epoch", t.Epoch)
		q.Set("after", strconv.FormatInt(t.Version, 10))
	}
	resp, err := c.call(ctx, http.MethodGet, balancerapi.TablePath+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	var t balancerapi.Table
	if err := json.NewDecoder(bounded.Reader(resp.Body, maxMessage, "a table")).Decode(&t); err != nil {
		return fmt.Errorf("reading the table: %w", err)
	}
	if t.Services == nil {
		t.Services = []balancerapi.Service{}
	}
	if err := t.Check(); err != nil {
		return err // asked for again after a pause
	}
	if err := b.Apply(t); err != nil {
		c.Logger.Error("table served in part", "version", t.Version, "err", err)
	}
	return nil
}

// reports sends reports.
func (c *Client) reports(ctx context.Context, b Target) {
	every := c.Every
	if every == 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			c.send(last, b)
			return
		case <-b.Waiting():
		case <-tick.C:
		}
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := c.send(once, b); err != nil {
			c.Logger.Debug("report not sent", "err", err)
		}
		cancel()
	}
}

func (c *Client) send(ctx context.Context, b Target) error {
	c.mu.Lock()
	have := c.have
	c.mu.Unlock()
	text, err := json.Marshal(b.Report(have))
	if err != nil {
		return err
	}
	resp, err := c.call(ctx, http.MethodPost, balancerapi.ReportPath, text)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var got balancerapi.Receipt
	if err := json.NewDecoder(bounded.Reader(resp.Body, maxMessage, "a receipt")).Decode(&got); err != nil {
		return err
	}
	c.mu.Lock()
	c.have = got.Have
	c.mu.Unlock()
	return nil
}

// Connect reaches a replica through the server. The connection outlives ctx.
func (c *Client) Connect(ctx context.Context, service string, replica int) (net.Conn, error) {
	q := url.Values{"service": {service}, "replica": {strconv.Itoa(replica)}}
	h := http.Header{}
	c.authorize(h)
	ws, resp, err := websocket.Dial(ctx, strings.TrimSuffix(c.Endpoint, "/")+balancerapi.ConnectPath+"?"+q.Encode(), &websocket.DialOptions{HTTPClient: c.HTTP, HTTPHeader: h})
	if err != nil {
		if resp != nil && resp.Body != nil {
			if text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)); len(text) > 0 {
				return nil, fmt.Errorf("through the server: %s: %s", resp.Status, strings.TrimSpace(string(text)))
			}
		}
		return nil, fmt.Errorf("through the server: %w", err)
	}
	ws.SetReadLimit(-1)
	return websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary), nil
}

func (c *Client) authorize(h http.Header) {
	if c.Token != nil {
		if token := c.Token(); token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Endpoint, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.authorize(req.Header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, req.URL.Path, resp.Status, strings.TrimSpace(string(text)))
	}
	return resp, nil
}
