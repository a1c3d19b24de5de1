package stores

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// openAzure takes the variables of the Azure CLI for the account, else the identity of the
// user or the machine.
func openAzure(at storage.Location, o Options) (storage.Bucket, error) {
	at.Account = cmp.Or(at.Account, o.Account, azure.AccountOf())
	b, err := azure.Open(at, azure.Options{Endpoint: o.Endpoint, Transport: o.Transport})
	if _, none := errors.AsType[*storage.CredentialsError](err); !none || at.Account == "" {
		return b, err
	}
	return azure.Open(at, azure.Options{Endpoint: o.Endpoint, Transport: o.Transport, Token: azureToken})
}

// identity is that of the process: variables, a workload's, a machine's, the Azure CLI's.
var identity = sync.OnceValues(func() (azcore.TokenCredential, error) { return azidentity.NewDefaultAzureCredential(nil) })

func azureToken(ctx context.Context) (rest.Token, error) {
	c, err := identity()
	if err != nil {
		return rest.Token{}, errors.New("there are none on this machine")
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{azure.Scope}})
	if err != nil {
		return rest.Token{}, err
	}
	return rest.Token{Value: t.Token, Account: "this identity", Expires: t.ExpiresOn}, nil
}
