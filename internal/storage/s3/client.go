package s3

import (
	"context"
	"io"
	"net/http"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/skypilot-go/sky/internal/storage/rest"
)

// client sends requests without following redirects, whose targets are not the
// one that the request was signed for.
//
// The SDK closes a request's body when it has the answer. net/http may still look
// then whether the body has more than it said, by WriteTo where there is one, which
// the SDK's body answers with io.EOF when it is closed; that counts as a failed
// request. So bodies can only be read and closed.
type client struct{ http.RoundTripper }

func (c client) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.RoundTrip(r)
}

// apiOptions are what all calls to a store have.
func apiOptions(m *member) []func(*middleware.Stack) error {
	options := []func(*middleware.Stack) error{
		// Nobody reads the times of requests that the SDK tells in its own ones.
		func(s *middleware.Stack) error {
			s.Build.Remove("RecursionDetection")
			return nil
		},
	}
	if m.checksum == md5Sums {
		options = append(options, md5OfDelete)
	}
	return options
}

// md5OfDelete protects DeleteObjects, which must have a checksum, by Content-MD5,
// where the store may not know those of the SDK.
func md5OfDelete(s *middleware.Stack) error {
	if s.ID() != "DeleteObjects" {
		return nil
	}
	for _, id := range []string{"AWSChecksum:SetupInputContext", "AWSChecksum:RequestMetricsTracking"} {
		s.Initialize.Remove(id)
	}
	s.Build.Remove("AWSChecksum:RequestMetricsTracking")
	s.Finalize.Remove("AWSChecksum:ComputeInputPayloadChecksum")
	s.Finalize.Remove("addInputChecksumTrailer")
	return smithyhttp.AddContentChecksumMiddleware(s)
}

// withKeys runs a call, and again with renewed keys while those it had have run
// out.
func withKeys[T any](ctx context.Context, b *Bucket, call func() (T, error)) (T, error) {
	for n := 0; ; n++ {
		used, err := b.keys.Retrieve(ctx)
		if err != nil {
			var none T
			return none, err
		}
		out, err := call()
		if n == rest.Renewals || err == nil || !expired(err) || ctx.Err() != nil || !b.keys.renew(used.SessionToken) {
			return out, err
		}
	}
}
