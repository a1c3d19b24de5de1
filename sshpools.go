package sky

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/url"

	"github.com/skypilot-go/sky/api"
)

const poolsPath = "/ssh_node_pools"

// SSHPools is what the server knows about machines of one's own: by pool what
// its file says, without passwords.
func (c *Client) SSHPools(ctx context.Context) (map[string]map[string]any, error) {
	return callJSON[map[string]map[string]any](ctx, c, http.MethodGet, poolsPath, nil, nil)
}

// SetSSHPools adds pools, or replaces those of the same names.
func (c *Client) SetSSHPools(ctx context.Context, pools map[string]any) error {
	_, err := postAgain[any](ctx, c, poolsPath, pools)
	return err
}

// DeleteSSHPool forgets a pool; its machines stay as they are.
func (c *Client) DeleteSSHPool(ctx context.Context, pool string) error {
	_, err := callJSON[any](ctx, c, http.MethodDelete, poolsPath+"/"+url.PathEscape(pool), nil, nil)
	return err
}

// SSHPoolStatus reports whether a pool's machines can be used.
func (c *Client) SSHPoolStatus(ctx context.Context, pool string) (api.SSHPoolStatus, error) {
	return callJSON[api.SSHPoolStatus](ctx, c, http.MethodGet, poolsPath+"/"+url.PathEscape(pool)+"/status", nil, nil)
}

// SSHKeys lists the names of the keys that the server keeps for pools.
func (c *Client) SSHKeys(ctx context.Context) ([]string, error) {
	return callJSON[[]string](ctx, c, http.MethodGet, poolsPath+"/keys", nil, nil)
}

// UploadSSHKey gives the server a private key for pools; the answer is its path
// there, which the identity_file of a pool names.
func (c *Client) UploadSSHKey(ctx context.Context, name string, key []byte) (path string, err error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if err := form.WriteField("key_name", name); err != nil {
		return "", err
	}
	file, err := form.CreateFormFile("key_file", name)
	if err == nil {
		_, err = file.Write(key)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return "", err
	}
	k := call{method: http.MethodPost, path: poolsPath + "/keys", body: body.Bytes(), form: form.FormDataContentType()}
	kept, err := exchangeJSON[struct {
		Path string `json:"key_path"`
	}](ctx, c, k, nil)
	return kept.Path, err
}

// SwitchSSHPools turns SSH node pools on (up) or off (down). infra names one
// pool, "" means all.
func (c *Client) SwitchSSHPools(ctx context.Context, infra string, up bool) (*Request[any], error) {
	verb := poolsPath + "/down"
	if up {
		verb = poolsPath + "/deploy"
	}
	body := api.SSHPoolBody{Envelope: c.envelope(), Cleanup: !up}
	if infra != "" {
		body.Infra = &infra
	}
	return post[any](ctx, c, verb, body)
}
