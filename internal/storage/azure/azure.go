// Package azure reaches Azure Blob Storage by its REST API. A bucket is a container of a
// storage account.
package azure

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Options say how the store is reached. What is given here comes before the variables
// of the Azure CLI: AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT with
// AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN. Those count for their own account only.
type Options struct {
	// Endpoint is where the account answers, as "http://127.0.0.1:10000/devstoreaccount1".
	Endpoint string
	// Key is the account's key, in base64.
	Key string
	// SAS is a shared access signature, as it stands in URLs.
	SAS string
	// Signature is asked for it at each request, if it is one that is renewed.
	Signature func() string
	// Token is asked for tokens for the scope [Scope].
	Token func(ctx context.Context) (rest.Token, error)
	// Anonymous uses no credentials, for public containers.
	Anonymous bool
	// Transport makes the connections; nil: storage.NewTransport.
	Transport http.RoundTripper
}

// Scope is what tokens are for.
const Scope = "https://storage.azure.com/.default"

// Fix is what to do where there are no credentials.
const Fix = "run: az login  (or set AZURE_STORAGE_CONNECTION_STRING)"

// Bucket is a container.
type Bucket struct {
	rest.Client
	auth   string // how it is authorized, and as whom: copies stay within that
	tokens *rest.Tokens
	sas    func() url.Values // nil: there is no signature
	// What a grant hands on, if there is no token.
	key, signature string
}

var _ storage.Bucket = (*Bucket)(nil)

// Open makes a bucket of its location, without any request. It fails with a
// [*storage.CredentialsError] where there are no credentials.
func Open(at storage.Location, o Options) (*Bucket, error) {
	at.Key = ""
	if at.Account == "" {
		return nil, &storage.CredentialsError{Store: storage.Azure, Err: errors.New("no storage account is named"), Fix: "name it in the URL: https://ACCOUNT.blob.core.windows.net/CONTAINER"}
	}
	if o.Signature != nil {
		o.SAS = o.Signature()
	}
	if o.Key == "" && o.SAS == "" && o.Token == nil && !o.Anonymous {
		if err := o.fromEnvironment(at.Account); err != nil {
			return nil, &storage.CredentialsError{Store: storage.Azure, Err: err, Fix: Fix}
		}
	}
	b := &Bucket{Client: rest.Client{At: at, Transport: o.Transport, BatchID: "%d", Endpoint: strings.TrimSuffix(cmp.Or(o.Endpoint, "https://"+at.Account+".blob.core.windows.net"), "/")}}
	b.Refused = b.classify
	b.key, b.signature = o.Key, o.SAS
	if b.Transport == nil {
		b.Transport = storage.NewTransport()
	}
	switch {
	case o.Key != "":
		key, err := base64.StdEncoding.DecodeString(o.Key)
		if err != nil {
			return nil, &storage.CredentialsError{Store: storage.Azure, Err: errors.New("the account's key is no base64"), Fix: Fix}
		}
		b.auth = "key of " + at.Account
		b.Authorize = func(_ context.Context, r *http.Request) (func(), error) {
			sign(r, at.Account, key)
			return nil, nil
		}
	case o.SAS != "":
		q, err := url.ParseQuery(strings.TrimPrefix(o.SAS, "?"))
		if err != nil {
			return nil, &storage.CredentialsError{Store: storage.Azure, Err: errors.New("the shared access signature cannot be read"), Fix: Fix}
		}
		b.auth, b.sas = "signature "+q.Get("sig"), func() url.Values { return q }
		if o.Signature != nil {
			b.sas = func() url.Values {
				q, _ := url.ParseQuery(strings.TrimPrefix(o.Signature(), "?"))
				return q
			}
		}
		b.Authorize = func(_ context.Context, r *http.Request) (func(), error) {
			stamp(r)
			all := r.URL.Query()
			for k, v := range b.sas() {
				all[k] = v
			}
			r.URL.RawQuery = all.Encode()
			return nil, nil
		}
	case o.Token != nil:
		b.auth = "tokens"
		b.tokens = &rest.Tokens{Get: o.Token, Store: storage.Azure, Fix: Fix}
		b.Authorize = func(ctx context.Context, r *http.Request) (func(), error) {
			stamp(r)
			return b.tokens.Authorize(ctx, r)
		}
	case o.Anonymous:
		b.Authorize = func(_ context.Context, r *http.Request) (func(), error) { stamp(r); return nil, nil }
	default:
		return nil, &storage.CredentialsError{Store: storage.Azure, Err: fmt.Errorf("there are none for the account %s", at.Account), Fix: Fix}
	}
	return b, nil
}

// The account and the key that emulators of the store have.
const (
	devAccount = "devstoreaccount1"
	devKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// fromEnvironment takes what the variables of the Azure CLI say about an account.
func (o *Options) fromEnvironment(account string) error {
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" {
		c, err := parseConnection(text)
		if err != nil {
			return err
		}
		if c.account == "" || c.account == account {
			o.Endpoint = cmp.Or(o.Endpoint, c.endpoint)
			o.Key, o.SAS = c.key, c.sas
			return nil
		}
	}
	if name := os.Getenv("AZURE_STORAGE_ACCOUNT"); name == account {
		o.Key, o.SAS = os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	}
	return nil
}

type connection struct{ account, key, sas, endpoint string }

// parseConnection reads a connection string. Its errors do not quote it: it holds secrets.
func parseConnection(text string) (c connection, err error) {
	fields := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		if k, v, ok := strings.Cut(part, "="); ok {
			fields[strings.ToLower(strings.TrimSpace(k))] = strings.TrimSpace(v)
		} else if strings.TrimSpace(part) != "" {
			return c, errors.New("AZURE_STORAGE_CONNECTION_STRING cannot be read: it has parts without \"=\"")
		}
	}
	if strings.EqualFold(fields["usedevelopmentstorage"], "true") {
		return connection{devAccount, devKey, "", "http://127.0.0.1:10000/" + devAccount}, nil
	}
	c = connection{account: fields["accountname"], key: fields["accountkey"], sas: fields["sharedaccesssignature"], endpoint: strings.TrimSuffix(fields["blobendpoint"], "/")}
	if c.endpoint == "" && c.account != "" {
		c.endpoint = cmp.Or(fields["defaultendpointsprotocol"], "https") + "://" + c.account + ".blob." + cmp.Or(fields["endpointsuffix"], "core.windows.net")
	}
	if c.endpoint == "" || c.key == "" && c.sas == "" {
		return c, errors.New("AZURE_STORAGE_CONNECTION_STRING names no account with a key or a signature")
	}
	if c.account == "" { // only an endpoint
		if u, err := url.Parse(c.endpoint); err == nil {
			c.account, _, _ = strings.Cut(u.Hostname(), ".")
		}
	}
	return c, nil
}

// AccountOf is the account that the variables of the Azure CLI name; "": none.
func AccountOf() string {
	if c, err := parseConnection(os.Getenv("AZURE_STORAGE_CONNECTION_STRING")); err == nil && c.account != "" {
		return c.account
	}
	return os.Getenv("AZURE_STORAGE_ACCOUNT")
}

// Location names the container.
func (b *Bucket) Location() storage.Location { return b.At }

// Caps says what the store can do. Its uploads are blocks of a blob that no list of the
// blob's has, without a beginning and an end of their own: they cannot be listed or
// aborted, and go after a week.
func (b *Bucket) Caps() storage.Caps {
	return storage.Caps{
		Create: true, Tags: true, Multipart: true, Versions: true, Conditional: true, ConditionalParts: true, Metadata: true, ListsMetadata: true, Ordered: true, UploadsFade: true,
		MinPart: 1, MaxPart: 4000 << 20, MaxParts: 50_000, MaxPut: 5000 << 20, MaxCopy: 190 << 40, MaxRemove: 256, MaxKey: 1024, MaxMetadata: 8 << 10,
	}
}

// CopiesFrom reports whether the store can copy objects of the other bucket: one of the
// same account.
func (b *Bucket) CopiesFrom(other storage.Bucket) bool {
	from, ok := storage.Driver(other).(*Bucket)
	return ok && from.Endpoint == b.Endpoint && from.auth == b.auth
}
