// Package granted opens buckets by grants: with the credentials that another machine has
// handed over, and never with what is found on this one.
package granted

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/gcs"
	"github.com/skypilot-go/sky/internal/storage/hf"
	"github.com/skypilot-go/sky/internal/storage/rest"
	"github.com/skypilot-go/sky/internal/storage/s3"
)

// Forget removes from the environment of this process what says where stores are and which
// credentials they take, as grants say both. It is called once, before anything is opened.
func Forget() {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "GCLOUD_", "CLOUDSDK_", "STORAGE_EMULATOR_", "HF_", "HUGGING_FACE_"} {
			if strings.HasPrefix(name, prefix) {
				os.Unsetenv(name)
			}
		}
	}
}

// A Holder holds a grant, which can be replaced by a newer one while its bucket is used.
type Holder struct {
	mu sync.Mutex
	g  storage.Grant
}

// Hold returns a holder of a grant.
func Hold(g storage.Grant) *Holder { return &Holder{g: g} }

// Renew replaces the credentials.
func (h *Holder) Renew(g storage.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.g = g
}

func (h *Holder) now() storage.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.g
}

// Open makes the bucket of a grant, without any request.
func Open(ctx context.Context, h *Holder, transport http.RoundTripper) (storage.Bucket, error) {
	g := h.now()
	at := g.Location()
	token := func(context.Context) (rest.Token, error) {
		g := h.now()
		return rest.Token{Value: g.Token, Account: g.Whose, Expires: g.Expires}, nil
	}
	switch g.Store {
	case storage.GCS:
		o := gcs.Options{Endpoint: g.Endpoint, Token: token, Transport: transport}
		if g.Token == "" {
			o.Token, o.Anonymous = nil, true
		}
		return gcs.Open(ctx, at, o)
	case storage.Azure:
		o := azure.Options{Endpoint: g.Endpoint, Key: g.Key, Transport: transport}
		if g.SAS != "" {
			o.Signature = func() string { return h.now().SAS }
		}
		if g.Token != "" {
			o.Token = token
		}
		o.Anonymous = g.Key == "" && g.SAS == "" && g.Token == ""
		return azure.Open(at, o)
	case storage.HF:
		return hf.Open(at, hf.Options{Endpoint: g.Endpoint, Token: g.Token, NoToken: g.Token == "", Transport: transport})
	}
	if !slices.Contains(s3.Stores(), g.Store) {
		return nil, &storage.UnsupportedError{Store: g.Store, Op: "be reached: it is no store that is known"}
	}
	return s3.Open(ctx, at, s3.Options{Endpoint: g.Endpoint, Transport: transport, Keys: func(context.Context) (s3.Keys, error) {
		g := h.now()
		if g.AccessKey == "" {
			return s3.Keys{}, errors.New("none were handed over")
		}
		return s3.Keys{AccessKey: g.AccessKey, SecretKey: g.SecretKey, SessionToken: g.SessionToken, Expires: g.Expires}, nil
	}})
}
