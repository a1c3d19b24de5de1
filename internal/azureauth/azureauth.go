// Package azureauth gets access tokens of Microsoft Entra ID with the credentials that
// are found on a machine: variables of a service principal, the identity of a workload or
// of the machine, what "az login" left. The Azure CLI itself is not needed. Files are
// only read: a refresh token stays good after it was used.
package azureauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options say where credentials are looked for. The zero value is this process's
// environment.
type Options struct {
	Home      string              // the folder that .azure is in; "": the user's home
	Getenv    func(string) string // nil: os.Getenv
	Transport http.RoundTripper   // that makes calls; nil: the usual one
	OnAzure   func() bool         // reports whether this is a machine of Azure; nil: asks the firmware's tables
}

// Cloud is a set of Azure's endpoints.
type Cloud struct {
	Login   string // of Microsoft Entra ID
	Manager string // of Azure Resource Manager
}

// clouds are Azure's, by the names that the Azure CLI has for them.
var clouds = map[string]Cloud{
	"AzureCloud":        {"https://login.microsoftonline.com", "https://management.azure.com"},
	"AzureChinaCloud":   {"https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"},
	"AzureUSGovernment": {"https://login.microsoftonline.us", "https://management.usgovcloudapi.net"},
}

// Fix is what to do where there are no credentials.
const Fix = "run: az login  (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET of a service principal)"

// MissingError means that there are no credentials, or that they cannot be read.
type MissingError struct {
	Fix  string
	Err  error
	None bool // nothing was found
}

func (e *MissingError) Error() string { return e.Err.Error() }
func (e *MissingError) Unwrap() error { return e.Err }

// RefusedError means that Microsoft Entra ID gives no token for the credentials.
type RefusedError struct {
	Code, Message string // as in "invalid_grant", "AADSTS70043: The refresh token has expired"
	Fix           string
}

func (e *RefusedError) Error() string { return e.Code + ": " + e.Message }

// Credentials are those that were found.
type Credentials struct {
	Kind         string // for people, as "az login"
	Account      string // the user's name or the client's id; "": a token tells
	Tenant       string // "": a token tells
	Subscription string // "": none is chosen
	Cloud        Cloud

	o      Options
	secret string // what the stamp is made of, besides the above
	ask    func(ctx context.Context, scope string) (Token, error)
	files  func() (map[string][]byte, error)

	mu   sync.Mutex
	have map[string]Token // by scope
}

// Token is an access token.
type Token struct {
	Value   string
	Expires time.Time
}

const (
	early   = 5 * time.Minute  // before its end a token is renewed
	timeout = 30 * time.Second // of a call
)

// Token is an access token for a scope such as "https://management.azure.com/.default".
func (c *Credentials) Token(ctx context.Context, scope string) (Token, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.have[scope]
	if time.Until(have.Expires) > early {
		return have, nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	got, err := c.ask(limited, scope)
	switch {
	case err == nil:
		if c.have == nil {
			c.have = map[string]Token{}
		}
		c.have[scope] = got
		return got, nil
	case ctx.Err() != nil:
		return Token{}, context.Cause(ctx)
	case time.Until(have.Expires) > 0: // still good
		return have, nil
	}
	return Token{}, err
}

// Forget drops the token of a scope, which was not accepted.
func (c *Credentials) Forget(scope string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.have, scope)
}

// Stamp is a digest of the credentials that reveals nothing of them.
func (c *Credentials) Stamp() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{c.Kind, c.Account, c.Tenant, c.Subscription, c.Cloud.Manager, c.secret}, "\x00")))
	return fmt.Sprintf("%x", sum[:6])
}

// Carry returns the files that make another machine use these credentials: contents by
// their path below the home folder.
func (c *Credentials) Carry() (map[string][]byte, error) {
	if c.files == nil {
		return nil, fmt.Errorf("the credentials in use (%s) are good on this machine only; use a service principal with a secret, or az login", c.Kind)
	}
	return c.files()
}

// Find returns the first credentials that there are: of the environment (a service
// principal, a workload, App Service), of az login, of the machine. It reads files and
// makes no calls. Its error is a [*MissingError].
func Find(o Options) (*Credentials, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Home == "" {
		o.Home, _ = os.UserHomeDir()
	}
	if to, err := url.Parse(o.cloud("").Login); err != nil || to.Scheme == "http" && to.Hostname() != "localhost" && !net.ParseIP(to.Hostname()).IsLoopback() {
		return nil, &MissingError{Fix: "set AZURE_AUTHORITY_HOST to an address such as https://login.microsoftonline.com, or unset it", Err: errors.New("AZURE_AUTHORITY_HOST names a server that is sent secrets, and those go by https, or by http to this machine")}
	}
	if o.OnAzure == nil {
		o.OnAzure = onAzure
	}
	for _, find := range []func(Options) (*Credentials, error){fromEnvironment, fromWorkload, fromAppService, fromCLI, fromMachine} {
		c, err := find(o)
		if err != nil {
			var missing *MissingError
			if !errors.As(err, &missing) {
				err = &MissingError{Fix: Fix, Err: err}
			}
			return nil, err
		}
		if c != nil {
			return c, nil
		}
	}
	return nil, &MissingError{Fix: Fix, Err: errors.New("there are no credentials: nobody has logged in with az login, and no service principal and no managed identity is set up"), None: true}
}

// found are credentials of the environment, in the cloud that it names.
func (o Options) found(kind, account string) *Credentials {
	return &Credentials{Kind: kind, Account: account, Tenant: o.Getenv("AZURE_TENANT_ID"), Subscription: o.Getenv("AZURE_SUBSCRIPTION_ID"), Cloud: o.cloud(""), o: o}
}

// cloud is the one whose login service AZURE_AUTHORITY_HOST names, else that of the name.
func (o Options) cloud(name string) Cloud {
	in, ok := clouds[name]
	if !ok {
		in = clouds["AzureCloud"]
	}
	host := strings.TrimSuffix(o.Getenv("AZURE_AUTHORITY_HOST"), "/")
	if host == "" {
		return in
	}
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	for _, c := range clouds {
		if c.Login == host {
			return c
		}
	}
	in.Login = host
	return in
}

// fromEnvironment is a service principal, by AZURE_CLIENT_SECRET or
// AZURE_CLIENT_CERTIFICATE_PATH.
func fromEnvironment(o Options) (*Credentials, error) {
	client, secret, path := o.Getenv("AZURE_CLIENT_ID"), o.Getenv("AZURE_CLIENT_SECRET"), o.Getenv("AZURE_CLIENT_CERTIFICATE_PATH")
	if secret == "" && path == "" {
		return nil, nil
	}
	c := o.found("service principal", client)
	for name, value := range map[string]string{"AZURE_CLIENT_ID": client, "AZURE_TENANT_ID": c.Tenant} {
		if value == "" {
			return nil, fmt.Errorf("the credentials of a service principal are set and %s is not", name)
		}
	}
	if secret != "" {
		c.bySecret(secret)
		return c, nil
	}
	return c, c.byCertificate(path, o.Getenv("AZURE_CLIENT_CERTIFICATE_PASSWORD"), isTrue(o.Getenv("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN")))
}

func isTrue(s string) bool { return s == "1" || strings.EqualFold(s, "true") }

func (c *Credentials) bySecret(secret string) {
	c.secret = secret
	c.ask = func(ctx context.Context, scope string) (Token, error) {
		return c.grant(ctx, scope, map[string]string{"grant_type": "client_credentials", "client_secret": secret})
	}
	c.files = func() (map[string][]byte, error) { return carriedPrincipal(c, secret) }
}

func (c *Credentials) byCertificate(path, password string, chain bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the certificate of the service principal: %w", err)
	}
	cert, err := readCertificate(text, password)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.secret = string(text)
	c.ask = func(ctx context.Context, scope string) (Token, error) {
		assertion, err := cert.assertion(c.tokenURL(), c.Account, chain, time.Now())
		if err != nil {
			return Token{}, err
		}
		return c.grant(ctx, scope, map[string]string{"grant_type": "client_credentials", "client_assertion_type": assertionType, "client_assertion": assertion})
	}
	return nil
}

const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// fromWorkload is a workload identity: another issuer's token, in a file that changes.
func fromWorkload(o Options) (*Credentials, error) {
	file := o.Getenv("AZURE_FEDERATED_TOKEN_FILE")
	if file == "" {
		return nil, nil
	}
	c := o.found("workload identity", o.Getenv("AZURE_CLIENT_ID"))
	if c.Account == "" || c.Tenant == "" {
		return nil, errors.New("AZURE_FEDERATED_TOKEN_FILE is set, and AZURE_CLIENT_ID or AZURE_TENANT_ID is not")
	}
	c.secret = file
	c.ask = func(ctx context.Context, scope string) (Token, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return Token{}, fmt.Errorf("the token of the workload: %w", err)
		}
		return c.grant(ctx, scope, map[string]string{"grant_type": "client_credentials", "client_assertion_type": assertionType, "client_assertion": strings.TrimSpace(string(text))})
	}
	return c, nil
}

// onAzure reports whether the firmware says so: all machines of Azure have this tag.
func onAzure() bool {
	text, err := os.ReadFile(filepath.FromSlash("/sys/class/dmi/id/chassis_asset_tag"))
	return err == nil && strings.TrimSpace(string(text)) == "7783-7084-3265-9085-8269-3286-77"
}
