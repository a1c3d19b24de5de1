package oci

import (
	"context"
	"crypto/rsa"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// host is that of a service in a region.
func host(service, region string) string {
	return service + "." + url.PathEscape(region) + ".oraclecloud.com"
}

// The services that are called.
const compute, identity = "iaas", "identity"

// authorize signs calls with the key that the credentials name. It is read for each, and says
// what is wrong with it.
func (p *Provider) authorize(keys map[string]string) func(*http.Request) error {
	return func(r *http.Request) error {
		_, key, err := p.key(keys["key_file"])
		if err != nil {
			return err
		}
		return rest.Sign(rest.HTTPSignature(keys["tenancy"]+"/"+keys["user"]+"/"+keys["fingerprint"], key))(r)
	}
}

// key reads the file of a key.
func (p *Provider) key(path string) (text []byte, key *rsa.PrivateKey, err error) {
	if text, err = p.ReadNamed(path); err == nil {
		key, err = rest.RSAKey(path, text)
	}
	if err != nil {
		err = &cloud.AuthError{Cloud: Name, Fix: p.Fix, Err: err}
	}
	return text, key, err
}

// CarryCredentials are the profile in use, as the only one, and its key.
func (p *Provider) CarryCredentials(context.Context) (map[string][]byte, error) {
	keys, err := p.Read()
	if err != nil {
		return nil, err
	}
	text, _, err := p.key(keys["key_file"])
	if err != nil {
		return nil, err
	}
	const at = ".oci/oci_api_key.pem"
	config := fmt.Sprintf("[DEFAULT]\nuser=%s\nfingerprint=%s\ntenancy=%s\nregion=%s\nkey_file=~/%s\n", keys["user"], keys["fingerprint"], keys["tenancy"], keys["region"], at)
	return map[string][]byte{p.Path: []byte(config), at: text}, nil
}

// pages are all things of a list.
func pages[T any](ctx context.Context, c *rest.Client, path string, query url.Values) ([]T, error) {
	return rest.Pages[T](ctx, c, path, query, "opc-next-page")
}

// remembered are those things of a list that count, as they were in the last minutes.
func remembered[T any](ctx context.Context, p *Provider, c *rest.Client, what, path string, query url.Values, counts func(T) bool) ([]T, error) {
	return vm.Remember(&p.places, p.CredentialStamp(), what, func() ([]T, error) {
		all, err := pages[T](ctx, c, path, query)
		return slices.DeleteFunc(all, func(t T) bool { return !counts(t) }), err
	})
}
