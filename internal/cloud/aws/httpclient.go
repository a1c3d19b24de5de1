package aws

import (
	"io"
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/skypilot-go/sky/internal/bounded"
)

// bodyClient sends requests whose bodies can only be read and closed.
//
// The SDK closes a request's body when it has the answer. net/http may still look
// then whether the body has more than it said, by WriteTo where there is one, which
// the SDK's body answers with io.EOF when it is closed; that counts as a failed
// request, and the connection is closed while the answer is read from it. For
// RunInstances, which is sent once, that is a lost answer.
//
// It also bounds the answers.
type bodyClient struct{ sdk.HTTPClient }

func (c bodyClient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	resp, err := c.HTTPClient.Do(r)
	if err == nil {
		resp.Body = bounded.ReadCloser(resp.Body, maxAnswer, "an answer of AWS")
	}
	return resp, err
}

// maxAnswer is more than the longest answer of an API.
const maxAnswer = 64 << 20
