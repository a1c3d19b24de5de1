package stores

import (
	"cmp"
	"context"
	"errors"

	"github.com/skypilot-go/sky/internal/azureauth"
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

// azureToken is a token of the identity of the moment: who logs in anew is heard.
func azureToken(ctx context.Context) (rest.Token, error) {
	c, err := azureauth.Find(azureauth.Options{})
	if err != nil {
		return rest.Token{}, err
	}
	t, err := c.Token(ctx, azure.Scope)
	if err != nil {
		return rest.Token{}, err
	}
	account := cmp.Or(c.Account, "this machine's identity")
	return rest.Token{Value: t.Value, Account: account, Expires: t.Expires}, nil
}
