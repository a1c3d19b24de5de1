package sky

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// LoginToken asks once whether the browser login that began with the verifier
// has ended; "" means not yet.
func (c *Client) LoginToken(ctx context.Context, verifier string) (string, error) {
	v, err := callJSON[struct {
		Token string `json:"token"`
	}](ctx, c, http.MethodGet, "/api/v1/auth/token", url.Values{"code_verifier": {verifier}}, nil)
	if s, ok := errors.AsType[*StatusError](err); ok && s.Code == http.StatusNotFound {
		return "", nil
	}
	return v.Token, err
}
