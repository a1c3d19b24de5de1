package fluffycloud

import (
	"context"
	"fmt"
	"net/url"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
)

// Variables of the environment that replace the credentials file.
const (
	EnvEndpoint = "FLUFFYCLOUD_ENDPOINT"
	EnvToken    = "FLUFFYCLOUD_TOKEN"
)

// fix is how to get credentials.
const fix = "run: fluffycloud serve --dir ~/fluffycloud --credentials ~/.fluffycloud/credentials, or set " + EnvEndpoint + " and " + EnvToken

// keys say where the cloud is and who we are to it.
var keys = keyfile.File{
	Cloud: Name, Path: ".fluffycloud/credentials", Names: []string{"endpoint", "token"},
	Env: map[string]string{"endpoint": EnvEndpoint, "token": EnvToken}, Fix: fix,
}

// api is the cloud, by the credentials of this moment.
func (p *Provider) api() (fluffyapi.API, error) {
	if p.o.API != nil {
		return p.o.API, nil
	}
	k, err := keys.Read()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(k["endpoint"])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &cloud.AuthError{Cloud: Name, Fix: fix, Err: fmt.Errorf("the endpoint %q is not an address such as http://127.0.0.1:7070", k["endpoint"])}
	}
	return fluffyapi.NewClient(&p.clients, k["endpoint"], k["token"]), nil
}

// CredentialStamp changes when the endpoint or the token does; "" without any.
func (p *Provider) CredentialStamp() string {
	if p.o.API != nil {
		return p.o.Stamp
	}
	return keys.CredentialStamp()
}

// CarryCredentials writes the credentials in use as a credentials file.
func (p *Provider) CarryCredentials(ctx context.Context) (map[string][]byte, error) {
	return keys.CarryCredentials(ctx)
}
