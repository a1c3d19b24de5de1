package sky

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
)

func (c *Client) logStream(path string, query url.Values, body any, tail int) (*LogStream, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &LogStream{c: c, path: path, query: query, body: raw, tail: tail}, nil
}

// RequestFilter selects requests for [Client.Requests].
type RequestFilter struct {
	IDs     []string // prefixes
	All     bool     // finished ones too
	Limit   int      // 0: no limit
	Cluster string
	Fields  []string // what to fill; none: everything
}

// Requests lists calls that the server knows, newest first.
func (c *Client) Requests(ctx context.Context, f RequestFilter) ([]api.RequestPayload, error) {
	q := url.Values{"all_status": {boolean(f.All)}}
	for _, id := range f.IDs {
		q.Add("request_ids", id)
	}
	for _, name := range f.Fields {
		q.Add("fields", name)
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if f.Cluster != "" {
		q.Set("cluster_name", f.Cluster)
	}
	return callJSON[[]api.RequestPayload](ctx, c, http.MethodGet, "/api/status", q, nil)
}

// Sizes reports how much room the server's files take.
func (c *Client) Sizes(ctx context.Context) (api.Sizes, error) {
	return callJSON[api.Sizes](ctx, c, http.MethodGet, "/api/sizes", nil, nil)
}

// CancelRequests ends calls in flight; the result lists those that it ended.
func (c *Client) CancelRequests(ctx context.Context, b api.APICancelBody) (*Request[[]string], error) {
	b.Envelope = c.envelope()
	return post[[]string](ctx, c, "/api/cancel", b)
}

// Completions of a word on the command line.
const (
	CompleteClusters = "cluster_name"
	CompleteStorages = "storage_name"
	CompleteVolumes  = "volume_name"
	CompleteRequests = "api_request"
)

// Complete lists names of the given kind that begin with prefix. It gives up
// after two seconds.
func (c *Client) Complete(ctx context.Context, kind, prefix string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	res, err := c.do(ctx, http.MethodGet, "/api/completion/"+kind, url.Values{"incomplete": {prefix}}, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, answerError(res)
	}
	defer res.Body.Close()
	var names []string
	return names, json.NewDecoder(res.Body).Decode(&names)
}

// deref is *p, or 0.
func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}

// Send makes a call whose body is JSON already, such as one that another server
// took, under an id of the caller's choosing (a random UUID): however often it is
// sent under the same id, the server takes it once. The body says who calls.
func (c *Client) Send(ctx context.Context, id, path string, body []byte) (*Request[json.RawMessage], error) {
	if _, err := c.submit(ctx, call{method: http.MethodPost, path: path, body: body, id: id}); err != nil {
		return nil, err
	}
	return &Request[json.RawMessage]{c, id}, nil
}

// SendLog is Send for calls that are answered with a log, whose last tail lines
// are wanted (0: all).
func (c *Client) SendLog(path string, body []byte, tail int) *LogStream {
	return &LogStream{c: c, path: path, body: body, tail: tail}
}

// Known reports whether the server has a request of that id.
func (c *Client) Known(ctx context.Context, id string) (bool, error) {
	list, err := c.Requests(ctx, RequestFilter{IDs: []string{id}, All: true, Limit: 1, Fields: []string{"request_id"}})
	return len(list) > 0, err
}
