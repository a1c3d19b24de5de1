package sky

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/skypilot-go/sky/api"
)

// OpenAPI is the description of every route in the language of OpenAPI 3.1.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return callJSON[json.RawMessage](ctx, c, http.MethodGet, "/api/openapi.json", nil, nil)
}

// Metrics writes the server's figures to w, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	return c.copyTo(ctx, call{method: http.MethodGet, path: "/metrics"}, w)
}

// Plugins lists additions to the server's pages.
func (c *Client) Plugins(ctx context.Context) ([]api.Plugin, error) {
	list, err := callJSON[api.Plugins](ctx, c, http.MethodGet, "/api/plugins", nil, nil)
	return list.Plugins, err
}
