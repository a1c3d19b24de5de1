// Package s3 reaches the stores that speak the API of Amazon S3: S3 itself,
// Cloudflare R2, Nebius, CoreWeave, VAST Data, OCI and IBM through their S3 APIs,
// and any server that is compatible, through [Options.Endpoint]. What sets the
// stores apart is a table, family.go.
package s3

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// Options say how a store is reached. The zero value takes what the user's own
// files and environment say.
type Options struct {
	// Endpoint is where the store answers, as "http://127.0.0.1:7070". It comes
	// before what the user's files and the SDK's variables (AWS_ENDPOINT_URL_S3) say.
	Endpoint string
	// Profile chooses one of ~/.aws; only for S3.
	Profile string
	// Keys come before what is found on this machine. They are asked again when
	// they have run out.
	Keys func(ctx context.Context) (Keys, error)
	// Transport makes the connections; nil: storage.NewTransport.
	Transport http.RoundTripper
}

// Bucket is a bucket of a store that speaks the API of S3.
type Bucket struct {
	at       storage.Location
	member   *member
	client   *s3.Client
	objects  rest.Client // for requests that there are many of
	keys     *renewed
	endpoint string // "" for AWS itself
}

var _ storage.Bucket = (*Bucket)(nil)

// Open makes a bucket of its location, without any request to the store. The
// region is the one of the location, of the user's files or the store's default.
// It fails with a [*storage.CredentialsError] where there are no credentials.
func Open(ctx context.Context, at storage.Location, o Options) (*Bucket, error) {
	m := memberOf(at.Store)
	if m == nil {
		return nil, &storage.UnsupportedError{Store: at.Store, Op: "be reached by the API of S3"}
	}
	if strings.HasSuffix(at.Bucket, "--x-s3") {
		return nil, &storage.UnsupportedError{Store: at.Store, Op: "be reached by directory buckets, whose lists have no order and whose keys of access are others"}
	}
	found, err := m.find(ctx, at.Region, o)
	if err != nil {
		return nil, err
	}
	at.Key = ""
	at.Region = found.region
	b := &Bucket{at: at, member: m, keys: found.keys, endpoint: found.endpoint}
	transport := o.Transport
	if transport == nil {
		transport = storage.NewTransport()
	}
	options := s3.Options{
		Region:      found.region,
		Credentials: b.keys,
		HTTPClient:  client{transport},
		// Retries are storage.Retry's.
		Retryer: aws.NopRetryer{},
		// Checksums are the driver's own, as headers: trailers are understood by
		// few stores.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		// Empty bodies do not need to be asked for, and others are sent at once.
		ContinueHeaderThresholdBytes: -1,
		DisableS3ExpressSessionAuth:  aws.Bool(true),
		UsePathStyle:                 m.pathStyle || pathStyle(m, found.endpoint),
		APIOptions:                   apiOptions(m),
	}
	if found.endpoint != "" {
		options.BaseEndpoint = &found.endpoint
	}
	b.client = s3.New(options)
	return b, b.direct(ctx, options.UsePathStyle, transport)
}

// pathStyle reports whether an endpoint cannot have names of buckets before it.
func pathStyle(m *member, endpoint string) bool {
	if endpoint == "" {
		return false
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return true
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil || u.Hostname() == "localhost" {
		return true
	}
	// Another server in place of AWS: few have names for buckets.
	return m.store == storage.S3 && !strings.HasSuffix(u.Hostname(), ".amazonaws.com") && !strings.HasSuffix(u.Hostname(), ".amazonaws.com.cn")
}

// Location names the bucket.
func (b *Bucket) Location() storage.Location { return b.at }

// Caps says what the store can do.
func (b *Bucket) Caps() storage.Caps { return b.member.caps() }

// CopiesFrom reports whether the store can copy objects of the other bucket.
func (b *Bucket) CopiesFrom(other storage.Bucket) bool {
	from, ok := storage.Driver(other).(*Bucket)
	return ok && from.member == b.member && from.endpoint == b.endpoint && from.keys.same(b.keys)
}
