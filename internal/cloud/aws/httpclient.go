package aws

import (
	"io"
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// bodyClient sends requests whose bodies can only be read and closed.
//
// The SDK closes a request's body when it has the answer. net/http may still look
// then whether the body has more than it said, by WriteTo where there is one, which
// the SDK's body answers with io.EOF when it is closed; that counts as a failed
// request, and the connection is closed while the answer is read from it. For
// RunInstances, which is sent once, that is a lost answer.
type bodyClient struct{ sdk.HTTPClient }

func (c bodyClient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.HTTPClient.Do(r)
}
