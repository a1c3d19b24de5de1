package oci

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// The services that are called.
const compute, identity = "iaas", "identity"

// account is whose key it is.
type account struct{ user, tenancy, fingerprint, region string }

// client calls a service in a region; "" is the one of the credentials.
func (p *Provider) client(service, region string) (*rest.Client, account, error) {
	keys, err := p.Read()
	if err != nil {
		return nil, account{}, err
	}
	a := account{keys["user"], keys["tenancy"], keys["fingerprint"], keys["region"]}
	_, key, err := p.key(keys["key_file"])
	if err != nil {
		return nil, a, &cloud.AuthError{Cloud: Name, Fix: p.Fix, Err: err}
	}
	if region == "" {
		region = a.region
	}
	host := service + "." + url.PathEscape(region) + ".oraclecloud.com"
	endpoint, err := vm.Endpoint(Name, "https://"+host)
	if err != nil {
		return nil, a, err
	}
	return p.clients.For(p.Stamp(keys)+" "+host+" "+endpoint, func() rest.Options {
		return rest.Options{
			Cloud: "OCI", Endpoint: endpoint + "/20160918", Host: host, TokenHeader: "opc-retry-token", Refusal: refusal,
			Authorize: rest.Sign(rest.HTTPSignature(a.tenancy+"/"+a.user+"/"+a.fingerprint, key)),
			Transport: p.tuning.Transport, Paces: p.tuning.Paces, Busy: p.tuning.Busy,
		}
	}), a, nil
}

// key reads the file of a key.
func (p *Provider) key(path string) ([]byte, *rsa.PrivateKey, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home := p.Home
		if home == "" {
			var err error
			if home, err = os.UserHomeDir(); err != nil {
				return nil, nil, errors.New("there is no home folder to look for the key in")
			}
		}
		path = filepath.Join(home, rest)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rsa != nil && string(text) == p.pem {
		return text, p.rsa, nil
	}
	key, err := rest.RSAKey(path, text)
	if err != nil {
		return nil, nil, err
	}
	p.pem, p.rsa = string(text), key
	return text, key, nil
}

// CarryCredentials are the profile in use, as the only one, and its key.
func (p *Provider) CarryCredentials(context.Context) (map[string][]byte, error) {
	keys, err := p.Read()
	if err != nil {
		return nil, err
	}
	text, _, err := p.key(keys["key_file"])
	if err != nil {
		return nil, &cloud.AuthError{Cloud: Name, Fix: p.Fix, Err: err}
	}
	const at = ".oci/oci_api_key.pem"
	config := fmt.Sprintf("[DEFAULT]\nuser=%s\nfingerprint=%s\ntenancy=%s\nregion=%s\nkey_file=~/%s\n", keys["user"], keys["fingerprint"], keys["tenancy"], keys["region"], at)
	return map[string][]byte{p.Path: []byte(config), at: text}, nil
}

// pages are all things of a list.
func pages[T any](ctx context.Context, c *rest.Client, path string, query url.Values) ([]T, error) {
	return rest.Pages[T](ctx, c, path, query, "opc-next-page")
}
