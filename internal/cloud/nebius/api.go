package nebius

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// account is whose credentials are in use.
type account struct {
	tenant, stamp    string
	token            string // of a person, or
	key, keyID, user string // the private key of a service account
}

// read reads the credentials: a token if there is one, else the key of a service account.
func (p *Provider) read() (account, error) {
	token, err := p.token.Read()
	key := map[string]string{}
	if none := (*cloud.AuthError)(nil); errors.As(err, &none) && none.NotSetUp {
		key, err = p.key.Read()
	}
	if err != nil {
		return account{}, err
	}
	tenant, err := p.tenant.Read()
	if err != nil {
		return account{}, &cloud.AuthError{Cloud: Name, Fix: p.tenant.Fix, Err: errors.Unwrap(err)}
	}
	user := key["subject-credentials.sub"]
	if user == "" {
		user = key["subject-credentials.iss"]
	}
	return account{
		tenant: tenant["tenant"], stamp: p.tenant.Stamp(tenant) + p.token.Stamp(token) + p.key.Stamp(key),
		token: token["token"], key: key["subject-credentials.private-key"], keyID: key["subject-credentials.kid"], user: user,
	}, nil
}

// CredentialStamp changes when the credentials do; "" without any.
func (p *Provider) CredentialStamp() string {
	a, err := p.read()
	if err != nil {
		return ""
	}
	return a.stamp
}

// CarryCredentials are the files in use.
func (p *Provider) CarryCredentials(ctx context.Context) (map[string][]byte, error) {
	a, err := p.read()
	if err != nil {
		return nil, err
	}
	from := p.key
	if a.token != "" {
		from = p.token
	}
	files, err := from.CarryCredentials(ctx)
	if err == nil {
		files[p.tenant.Path] = []byte(a.tenant + "\n")
	}
	return files, err
}

// client calls a service.
func (p *Provider) client(service string) (*rest.Client, account, error) {
	a, err := p.read()
	if err != nil {
		return nil, a, err
	}
	o, err := p.options(service)
	if err != nil {
		return nil, a, err
	}
	o.Authorize = rest.Bearer(a.token)
	if a.token == "" {
		if o.Authorize, err = p.exchanging(a); err != nil {
			return nil, a, &cloud.AuthError{Cloud: Name, Fix: p.key.Fix, Err: err}
		}
	}
	return p.clients.For(a.stamp+" "+service+" "+o.Endpoint, func() rest.Options { return o }), a, nil
}

func (p *Provider) options(service string) (rest.Options, error) {
	endpoint, err := vm.Endpoint(Name, "https://"+service+"."+p.tuning.Endpoint)
	return rest.Options{Cloud: displayName, Endpoint: endpoint, Transport: p.transport, Paces: p.tuning.Paces, Busy: p.tuning.Busy}, err
}

// exchanging authorizes calls with tokens that the key of a service account is good for.
func (p *Provider) exchanging(a account) (func(*http.Request) error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokensOf == a.stamp {
		return p.authorize, nil
	}
	key, err := rest.RSAKey("~/"+p.key.Path, []byte(a.key))
	if err != nil {
		return nil, err
	}
	o, err := p.options(nebiusapi.Tokens)
	if err != nil {
		return nil, err
	}
	c := rest.New(o)
	p.tokensOf, p.authorize = a.stamp, rest.Tokens(func(ctx context.Context) (string, time.Time, error) {
		return nebiusapi.Exchange(ctx, c, a.user, a.keyID, key)
	})
	return p.authorize, nil
}
