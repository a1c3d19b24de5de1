package s3

import (
	"context"
	"io"
	"net/http"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
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

// unsigned leaves the content out of the signature: a checksum protects it.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// renewals is how often a call is made again with newer keys: those of a busy
// moment may run out before the call arrives.
const renewals = 3

// withKeys runs a call, and again with renewed keys while those it had have run
// out.
func withKeys[T any](ctx context.Context, b *Bucket, call func() (T, error)) (T, error) {
	out, err := call()
	for n := 0; n < renewals && err != nil && expired(err) && ctx.Err() == nil && b.keys.renew(); n++ {
		out, err = call()
	}
	return out, err
}
