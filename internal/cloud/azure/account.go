package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/azureauth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// login is a set of credentials, its client and its subscription.
type login struct {
	cred         *azureauth.Credentials
	stamp        string
	client       *rest.Client
	endpoint     *url.URL
	subscription string // "": not chosen yet
}

// account is a login with its subscription.
type account struct {
	*rest.Client
	login        *login
	subscription string
	other        bool // it is not the one in use
}

// login returns what the credentials of this moment are good for, without any calls.
func (p *Provider) login() (*login, error) {
	auth := p.o.Auth
	auth.Home, auth.Transport = cmp.Or(auth.Home, p.o.Tuning.Home), p.o.Tuning.Transport
	cred, err := azureauth.Find(auth)
	var missing *azureauth.MissingError
	if errors.As(err, &missing) {
		return nil, &cloud.AuthError{Cloud: Name, Fix: missing.Fix, Err: err, NotSetUp: missing.None}
	} else if err != nil {
		return nil, err
	}
	address, err := vm.Endpoint(Name, cmp.Or(p.o.Tuning.Endpoint, cred.Cloud.Manager))
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	stamp := cred.Stamp() + " " + address
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil && p.known.stamp == stamp { // it has tokens already
		return p.known, nil
	}
	l := &login{cred: cred, stamp: stamp, endpoint: endpoint, subscription: cred.Subscription}
	t := p.o.Tuning
	l.client = p.clients.For(stamp, func() rest.Options {
		return rest.Options{
			Cloud: displayName, Endpoint: address, Transport: t.Transport, Paces: t.Paces, Busy: t.Busy, Timeout: time.Minute,
			Authorize: l.authorize, Refusal: l.refusal,
		}
	})
	p.known = l
	return l, nil
}

// account is the login with its subscription: the one that was chosen, else the only one.
func (p *Provider) account(ctx context.Context) (*account, error) {
	l, err := p.login()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	a := &account{l.client, l, l.subscription, false}
	p.mu.Unlock()
	if a.subscription != "" {
		return a, nil
	}
	all, err := list[subscription](ctx, a, "/subscriptions", apiSubscriptions)
	if err != nil {
		return nil, err
	}
	var open []string
	for _, s := range all {
		if s.open() == nil {
			open = append(open, s.ID)
		}
	}
	if len(open) != 1 {
		return nil, &cloud.AuthError{Cloud: Name, Fix: "set AZURE_SUBSCRIPTION_ID, or run: az account set --subscription ID",
			Err: fmt.Errorf("no subscription is chosen, and the credentials see %d that are open: %s", len(open), strings.Join(open, ", "))}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.subscription, a.subscription = open[0], open[0]
	return a, nil
}

// scope is what tokens are for.
func (l *login) scope() string { return l.cred.Cloud.Manager + "/.default" }

func (l *login) authorize(r *http.Request) error {
	t, err := l.token(r.Context())
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+t.Value)
	}
	return err
}

func (l *login) token(ctx context.Context) (azureauth.Token, error) {
	t, err := l.cred.Token(ctx, l.scope())
	var refused *azureauth.RefusedError
	switch {
	case errors.As(err, &refused):
		return t, &cloud.AuthError{Cloud: Name, Fix: refused.Fix, Err: err}
	case err != nil && ctx.Err() == nil:
		return t, &rest.NoAnswerError{Cloud: displayName, Err: err}
	}
	return t, err
}

// who is whose the credentials are.
func (l *login) who(ctx context.Context) (string, error) {
	if l.cred.Account != "" {
		return l.cred.Account, nil
	}
	t, err := l.token(ctx)
	claims := t.Claims()
	return cmp.Or(claims.User, claims.Name, claims.App, claims.Object, l.cred.Kind), err
}

// CredentialStamp is a digest of the credentials in use.
func (p *Provider) CredentialStamp() string {
	l, err := p.login()
	if err != nil {
		return ""
	}
	return l.cred.Stamp()
}

// CarryCredentials are the files of the login, or of the service principal.
func (p *Provider) CarryCredentials(context.Context) (map[string][]byte, error) {
	l, err := p.login()
	if err != nil {
		return nil, err
	}
	return l.cred.Carry()
}
