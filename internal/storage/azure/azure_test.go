package azure

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

var testKey = base64.StdEncoding.EncodeToString([]byte("secret-of-sky"))

func open(t *testing.T, h http.HandlerFunc, o Options) *Bucket {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	o.Endpoint, o.Transport = s.URL, transport
	b, err := Open(storage.Location{Store: storage.Azure, Account: "acct1", Bucket: "c"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestErrorsAreTypes(t *testing.T) {
	at := storage.Location{Store: storage.Azure, Account: "acct1", Bucket: "c"}
	u := storage.Upload{Key: "k", ID: "u1"}
	list := func(ctx context.Context, b *Bucket) error { _, err := b.List(ctx, storage.ListOptions{}); return err }
	stat := func(ctx context.Context, b *Bucket) error { _, err := b.Stat(ctx, "k"); return err }
	put := func(ctx context.Context, b *Bucket) error {
		_, err := b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{})
		return err
	}
	putIf := func(ctx context.Context, b *Bucket) error {
		_, err := b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{IfAbsent: true})
		return err
	}
	complete := func(ctx context.Context, b *Bucket) error {
		_, err := b.Complete(ctx, u, []storage.Part{{Number: 1, ETag: "x"}}, storage.PutOptions{})
		return err
	}
	create := func(ctx context.Context, b *Bucket) error { return b.Create(ctx, nil) }
	key := "the key of acct1"
	for _, c := range []struct {
		name   string
		call   func(context.Context, *Bucket) error
		status int
		code   string
		want   error
	}{
		{"no container", list, 404, "ContainerNotFound", &storage.NotFoundError{Bucket: at}},
		{"no container, by a put", put, 404, "ContainerNotFound", &storage.NotFoundError{Bucket: at}},
		{"no blob", stat, 404, "BlobNotFound", &storage.NotFoundError{Bucket: at, Key: "k"}},
		{"blocks that are gone", complete, 400, "InvalidBlockList", &storage.NotFoundError{Bucket: at, Key: "k", Upload: "u1"}},
		{"ours already", create, 409, "ContainerAlreadyExists", nil},
		{"still being deleted", create, 409, "ContainerBeingDeleted", &storage.UnavailableError{Bucket: at}},
		{"denied", put, 403, "AuthorizationPermissionMismatch", &storage.DeniedError{Bucket: at, Key: "k", Permission: contributor, Account: key}},
		{"denied, by HEAD", stat, 403, "", &storage.DeniedError{Bucket: at, Key: "k", Permission: reader, Account: key}},
		{"a wrong key", list, 403, "AuthenticationFailed", &storage.CredentialsError{Store: storage.Azure, Fix: Fix}},
		{"a condition", put, 412, "ConditionNotMet", &storage.ConflictError{Bucket: at, Key: "k"}},
		{"a condition on nothing", putIf, 409, "BlobAlreadyExists", &storage.ConflictError{Bucket: at, Key: "k"}},
		{"too fast", put, 503, "ServerBusy", &storage.ThrottledError{Bucket: at, After: 5 * time.Second}},
		{"trouble", put, 500, "InternalError", &storage.UnavailableError{Bucket: at}},
		{"bytes that changed on their way", put, 400, "Md5Mismatch", &storage.UnavailableError{Bucket: at}},
		{"a bad request", put, 400, "InvalidHeaderValue", &storage.InvalidError{Bucket: at, Key: "k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, func(w http.ResponseWriter, r *http.Request) {
				if c.code != "" {
					w.Header().Set("X-Ms-Error-Code", c.code)
				}
				w.Header().Set("Retry-After", "5")
				if r.Method == http.MethodGet && c.want == nil { // whose container is it?
					return
				}
				w.WriteHeader(c.status)
				fmt.Fprintf(w, "\ufeff<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>words\nRequestId:1</Message></Error>", c.code)
			}, Options{Key: testKey})
			err := c.call(t.Context(), b)
			if c.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if reflect.TypeOf(err) != reflect.TypeOf(c.want) {
				t.Fatalf("%T %v, want %T", err, err, c.want)
			}
			if strings.Contains(err.Error(), "RequestId") || strings.Contains(err.Error(), "secret-of-sky") || strings.Contains(err.Error(), testKey) {
				t.Errorf("words: %v", err)
			}
			reflect.ValueOf(err).Elem().FieldByName("Err").SetZero()
			if !reflect.DeepEqual(err, c.want) {
				t.Errorf("%+v, want %+v", err, c.want)
			}
		})
	}
}

// The example of the API's documentation.
func TestToSign(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, "https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&timeout=20", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Ms-Date", "Fri, 26 Jun 2015 23:39:12 GMT")
	r.Header.Set("X-Ms-Version", "2015-02-21")
	const want = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
	if got := toSign(r, "myaccount"); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestConnectionStrings(t *testing.T) {
	for _, c := range []struct {
		text string
		want connection
		bad  string
	}{
		{"DefaultEndpointsProtocol=https;AccountName=acct1;AccountKey=a2V5==;EndpointSuffix=core.windows.net", connection{account: "acct1", key: "a2V5==", endpoint: "https://acct1.blob.core.windows.net"}, ""},
		{"AccountName=acct1;AccountKey=k;BlobEndpoint=http://127.0.0.1:10000/acct1;", connection{account: "acct1", key: "k", endpoint: "http://127.0.0.1:10000/acct1"}, ""},
		{"BlobEndpoint=https://acct1.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D", connection{account: "acct1", sas: "sv=1&sig=a%3D", endpoint: "https://acct1.blob.core.windows.net"}, ""},
		{"UseDevelopmentStorage=true", connection{account: "devstoreaccount1", key: devKey, endpoint: "http://127.0.0.1:10000/devstoreaccount1"}, ""},
		{"AccountName=acct1", connection{}, "no account with a key"},
		{"hidden", connection{}, "cannot be read"},
	} {
		got, err := parseConnection(c.text)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%q: %v", c.text, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
}

func TestWhereCredentialsAreFound(t *testing.T) {
	at := storage.Location{Store: storage.Azure, Account: "acct1", Bucket: "c"}
	clear := func() {
		for _, v := range []string{"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"} {
			t.Setenv(v, "")
		}
	}
	clear()
	_, err := Open(at, Options{})
	if _, ok := errors.AsType[*storage.CredentialsError](err); !ok || !strings.Contains(err.Error(), "az login") {
		t.Errorf("none: %v", err)
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acct1;AccountKey="+testKey+";BlobEndpoint=http://127.0.0.1:1/acct1")
	if b, err := Open(at, Options{}); err != nil || b.Endpoint != "http://127.0.0.1:1/acct1" || b.auth != "key of acct1" || AccountOf() != "acct1" {
		t.Errorf("a connection string: %+v, %v", b, err)
	}
	other := at
	other.Account = "acct2"
	if _, err := Open(other, Options{}); err == nil {
		t.Error("the key of another account is used")
	}
	clear()
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acct1")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=x")
	if b, err := Open(at, Options{}); err != nil || b.sas().Get("sig") != "x" || b.Endpoint != "https://acct1.blob.core.windows.net" {
		t.Errorf("a signature: %+v, %v", b, err)
	}
	if _, err := Open(storage.Location{Store: storage.Azure, Bucket: "c"}, Options{}); err == nil {
		t.Error("no account is needed")
	}
}

func TestTokensAreRenewed(t *testing.T) {
	asked := 0
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-2" || r.Header.Get("X-Ms-Version") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Header().Set("ETag", `"0x1"`)
	}, Options{Token: func(context.Context) (rest.Token, error) {
		asked++
		return rest.Token{Value: fmt.Sprint("token-", asked)}, nil
	}})
	if o, err := b.Put(t.Context(), "k", strings.NewReader("x"), storage.PutOptions{}); err != nil || o.ETag != "0x1" || asked != 2 {
		t.Errorf("%+v, %v, asked %d times", o, err, asked)
	}
}

func TestIdentifiers(t *testing.T) {
	for name, want := range map[string]string{"team": "team", "sky-bucket-id": "sky_2dbucket_2did", "a_b": "a_b", "a_bc": "a_5fbc", "1st": "_31st"} {
		if got := identifier(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9_-]{1,12}`).Draw(t, "name")
		id := identifier(name)
		if plainName(id) != name {
			t.Errorf("%q is %q, which is %q", name, id, plainName(id))
		}
		if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || id[0] >= '0' && id[0] <= '9' {
			t.Errorf("%q is %q", name, id)
		}
	})
}
