// Package hf reads from the Hugging Face Hub: its buckets, and repositories of models,
// datasets and spaces. It writes nothing.
package hf

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Options say how the Hub is reached. The zero value takes what the user's own files and
// environment say (HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME); without a token, what
// is public can be read.
type Options struct {
	Endpoint  string // as "https://huggingface.co"
	Token     string
	NoToken   bool              // none is looked for on this machine
	Transport http.RoundTripper // nil: storage.NewTransport
}

const (
	standardEndpoint = "https://huggingface.co"
	Fix              = "run: hf auth login  (or set HF_TOKEN)"
	mainRevision     = "main"
)

// Bucket is a bucket or a repository.
type Bucket struct {
	rest.Client
	token string
	api   string // path of its API
	tree  string // path of its files in the API
	files string // path of their content
}

var _ storage.Bucket = (*Bucket)(nil)

// Open makes a bucket of its location, without any request.
func Open(at storage.Location, o Options) (*Bucket, error) {
	at.Key = ""
	b := &Bucket{Client: rest.Client{At: at, Endpoint: strings.TrimSuffix(cmp.Or(o.Endpoint, os.Getenv("HF_ENDPOINT"), standardEndpoint), "/"), Transport: o.Transport}}
	if b.Transport == nil {
		b.Transport = storage.NewTransport()
	}
	b.Refused = b.classify
	kind, _, _ := strings.Cut(at.Bucket, "/")
	name := "/" + at.Bucket
	switch kind {
	case "buckets":
		b.api = "/api" + name
		b.tree, b.files = b.api+"/tree", name+"/resolve"
	case "datasets", "spaces":
		b.api = "/api" + name
	default:
		b.api = "/api/models" + name
	}
	if kind != "buckets" {
		revision := url.PathEscape(cmp.Or(at.Revision, mainRevision))
		b.tree, b.files = b.api+"/tree/"+revision, name+"/resolve/"+revision
	}
	if b.token = o.Token; b.token == "" && !o.NoToken {
		b.token = findToken()
	}
	if b.token != "" {
		b.Authorize = func(_ context.Context, r *http.Request) (func(), error) {
			r.Header.Set("Authorization", "Bearer "+b.token)
			return nil, nil
		}
	}
	return b, nil
}

// HasToken reports whether there is a token of the user's.
func HasToken() bool { return findToken() != "" }

// findToken looks where users of the Hub have their token.
func findToken() string {
	if t := cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")); t != "" {
		return strings.TrimSpace(t)
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		dir := os.Getenv("HF_HOME")
		if dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return ""
			}
			dir = filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "huggingface")
		}
		file = filepath.Join(dir, "token")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Location names the bucket.
func (b *Bucket) Location() storage.Location { return b.At }

// Caps says that it can only be read.
func (b *Bucket) Caps() storage.Caps {
	return storage.Caps{ReadOnly: true, ListsMetadata: true, MaxKey: 1024}
}

// CopiesFrom is false.
func (b *Bucket) CopiesFrom(storage.Bucket) bool { return false }

// classify makes an error of an answer.
func (b *Bucket) classify(c rest.Call, r rest.Refusal) error {
	r.Code, r.Message = r.Header.Get("X-Error-Code"), r.Header.Get("X-Error-Message")
	denied := &storage.DeniedError{Bucket: b.At, Key: c.Key, Permission: "read access", Account: "this token", Err: r}
	if b.token == "" {
		denied.Account = "anybody without a token"
	}
	switch r.Code {
	case "RepoNotFound", "RevisionNotFound", "BucketNotFound":
		if r.Status == http.StatusUnauthorized && b.token == "" {
			return denied // private, or not there: it is not said
		}
		return &storage.NotFoundError{Bucket: b.At, Err: r}
	case "EntryNotFound":
		return &storage.NotFoundError{Bucket: b.At, Key: c.Key, Err: r}
	case "GatedRepo":
		denied.Permission = "access on the repository's page, which asks to agree to its terms"
		return denied
	}
	switch {
	case r.Status == http.StatusNotFound:
		return &storage.NotFoundError{Bucket: b.At, Key: c.Key, Err: r}
	case r.Status == http.StatusUnauthorized && b.token != "":
		return &storage.CredentialsError{Store: storage.HF, Err: r, Fix: Fix}
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden:
		return denied
	case r.Status == http.StatusTooManyRequests:
		return &storage.ThrottledError{Bucket: b.At, After: r.After(), Err: r}
	case r.Status == http.StatusPreconditionFailed:
		return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
	case r.Status >= 500, r.Status == http.StatusRequestTimeout, r.Status < 400:
		return &storage.UnavailableError{Bucket: b.At, Err: r}
	}
	return &storage.InvalidError{Bucket: b.At, Key: c.Key, Err: r}
}
