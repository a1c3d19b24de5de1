package azureauth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// fromAppService is the managed identity of App Service, Functions or Container Apps.
//
// https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
func fromAppService(o Options) (*Credentials, error) {
	endpoint, header := o.Getenv("IDENTITY_ENDPOINT"), o.Getenv("IDENTITY_HEADER")
	if endpoint == "" || header == "" {
		return nil, nil
	}
	return o.managed(endpoint, url.Values{"api-version": {"2019-08-01"}}, http.Header{"X-Identity-Header": {header}}, "client_id", o.Getenv("AZURE_CLIENT_ID")), nil
}

// fromMachine is the managed identity of a machine of Azure.
func fromMachine(o Options) (*Credentials, error) {
	if !o.OnAzure() && o.Getenv(metadataVariable) == "" {
		return nil, nil
	}
	return o.fromMetadata("client_id", o.Getenv("AZURE_CLIENT_ID")), nil
}

// metadataVariable names another metadata service, as for Microsoft's libraries.
const metadataVariable = "AZURE_POD_IDENTITY_AUTHORITY_HOST"

// fromMetadata asks the metadata service for tokens of an identity; value "": the only one.
//
// https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
func (o Options) fromMetadata(key, value string) *Credentials {
	host := strings.TrimSuffix(cmp.Or(o.Getenv(metadataVariable), "http://169.254.169.254"), "/")
	return o.managed(host+"/metadata/identity/oauth2/token", url.Values{"api-version": {"2018-02-01"}}, http.Header{"Metadata": {"true"}}, key, value)
}

func (o Options) managed(endpoint string, query url.Values, header http.Header, key, value string) *Credentials {
	c := o.found("managed identity", value)
	if value != "" {
		query.Set(key, value)
	}
	c.secret = endpoint
	c.ask = func(ctx context.Context, scope string) (Token, error) {
		for pause := time.Second; ; pause *= 2 {
			t, err := c.askIdentity(ctx, endpoint, query, header, scope)
			var again *statusError
			if !errors.As(err, &again) || pause > 8*time.Second {
				return t, err
			}
			select {
			case <-ctx.Done():
				return t, context.Cause(ctx)
			case <-time.After(pause):
			}
		}
	}
	return c
}

func (c *Credentials) askIdentity(ctx context.Context, endpoint string, query url.Values, header http.Header, scope string) (Token, error) {
	q := url.Values{"resource": {strings.TrimSuffix(scope, "/.default")}}
	for k, v := range query {
		q[k] = v
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"?"+q.Encode(), nil)
	if err != nil {
		return Token{}, err
	}
	r.Header = header.Clone()
	return c.send(r)
}
