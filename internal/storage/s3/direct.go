package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Reading and writing objects, of which there may be many small ones, goes past the SDK's
// client, whose layers take a quarter of the processor's time of a whole download. Where to
// and how requests are signed is the SDK's.

const (
	emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	anySum   = "UNSIGNED-PAYLOAD"                                                 // a checksum protects it
)

// direct prepares b.objects.
func (b *Bucket) direct(ctx context.Context, pathStyle bool, transport http.RoundTripper) error {
	p := s3.EndpointParameters{Bucket: &b.at.Bucket, Region: &b.at.Region, ForcePathStyle: &pathStyle, UseFIPS: aws.Bool(false), UseDualStack: aws.Bool(false), Accelerate: aws.Bool(false)}
	if b.endpoint != "" {
		p.Endpoint = &b.endpoint
	}
	to, err := s3.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, p)
	if err != nil {
		return &storage.InvalidError{Bucket: b.at, Err: err}
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	b.objects = rest.Client{
		At: b.at, Endpoint: strings.TrimSuffix(to.URI.String(), "/"), Transport: transport,
		Authorize: func(ctx context.Context, r *http.Request) (func(), error) {
			keys, err := b.keys.Retrieve(ctx)
			if err != nil {
				return nil, err
			}
			// What stands on the way may change this one, so it is not signed.
			encoding := r.Header["Accept-Encoding"]
			delete(r.Header, "Accept-Encoding")
			err = signer.SignHTTP(ctx, keys, r, r.Header.Get("X-Amz-Content-Sha256"), "s3", b.at.Region, time.Now())
			r.Header["Accept-Encoding"] = encoding
			return func() { b.keys.renew(keys.SessionToken) }, err
		},
		Expired: func(c rest.Call, r rest.Refusal) bool {
			if b.keys.lasting() {
				return false
			}
			return expiredCodes[words(r).code] || c.Method == http.MethodHead && r.Status == http.StatusBadRequest
		},
		Refused: func(c rest.Call, r rest.Refusal) error {
			return b.classify(op{permission: c.Permission, key: c.Key, upload: c.Upload, conditional: c.Conditional}, words(r))
		},
	}
	return nil
}

// words are what an answer says.
func words(r rest.Refusal) refusal {
	out := refusal{status: r.Status, header: r.Header}
	var x struct{ Code, Message string }
	if len(bytes.TrimSpace(r.Text)) > 0 && xml.Unmarshal(r.Text, &x) == nil {
		out.code, out.message = x.Code, x.Message
	}
	return out
}

// call is one about an object.
func (b *Bucket) call(method, key, permission, sum string) rest.Call {
	return rest.Call{Method: method, Path: "/" + escaped(key), Query: url.Values{}, Key: key, Permission: permission,
		Header: http.Header{"X-Amz-Content-Sha256": {sum}, "User-Agent": {"sky"}}}
}

// described is what the headers of an answer say.
func described(key string, size int64, h http.Header) storage.Object {
	etag := h.Get("ETag")
	var modified *time.Time
	if t, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		modified = &t
	}
	o := object(key, size, &etag, modified)
	o.Version, o.Metadata = h.Get("X-Amz-Version-Id"), rest.Metadata(h, "x-amz-meta-")
	return o
}
