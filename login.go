package sky

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// LoginToken asks once whether the browser login that began with the verifier
// has ended; "" means not yet.
func (c *Client) LoginToken(ctx context.Context, verifier string) (string, error) {
	res, err := c.do(ctx, http.MethodGet, "/api/v1/auth/token", url.Values{"code_verifier": {verifier}}, nil)
	if err != nil {
		return "", err
	}
	if res.StatusCode == http.StatusNotFound {
		res.Body.Close()
		return "", nil
	}
	if res.StatusCode != http.StatusOK {
		return "", answerError(res)
	}
	defer res.Body.Close()
	var v struct {
		Token string `json:"token"`
	}
	return v.Token, json.NewDecoder(res.Body).Decode(&v)
}
