package scoped

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

const googleSTS = "https://sts.googleapis.com/v1/token"

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// downscoped makes a token of a token, for a bucket whose permissions are of the whole bucket
// (uniform access). It holds as long as the other one.
func (m *Maker) downscoped(ctx context.Context, g storage.Grant, u Use) (storage.Grant, error) {
	form := url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:access_token"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token":        {g.Token},
		"options":              {boundary(g, u)},
	}
	text, err := m.post(ctx, cmp.Or(m.Google, googleSTS), form.Encode(), map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
	if err != nil {
		return storage.Grant{}, err
	}
	var answer struct {
		Token   string  `json:"access_token"`
		Seconds float64 `json:"expires_in"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Token == "" {
		return storage.Grant{}, fmt.Errorf("the answer has no token (%v)", err)
	}
	n := without(g)
	n.Token, n.Expires, n.Whose = answer.Token, g.Expires, whose(g, u)
	if end := m.now().Add(time.Duration(answer.Seconds) * time.Second); answer.Seconds > 0 && (n.Expires.IsZero() || end.Before(n.Expires)) {
		n.Expires = end
	}
	if n.Expires.IsZero() {
		return storage.Grant{}, errRefused // nobody knows when to renew it
	}
	return n, nil
}

type rule struct {
	Resource    string     `json:"availableResource"`
	Permissions []string   `json:"availablePermissions"`
	Condition   *condition `json:"availabilityCondition,omitempty"`
}

type condition struct {
	Expression string `json:"expression"`
}

// boundary is what a use of a bucket needs.
func boundary(g storage.Grant, u Use) string {
	bucket := "//storage.googleapis.com/projects/_/buckets/" + g.Bucket
	objects := rule{Resource: bucket, Permissions: []string{"inRole:roles/storage.objectAdmin"}}
	if u.ReadOnly {
		objects.Permissions = []string{"inRole:roles/storage.objectViewer"}
	}
	if u.Prefix != "" {
		objects.Condition = &condition{fmt.Sprintf("resource.name.startsWith('projects/_/buckets/%s/objects/%s')", g.Bucket, u.Prefix)}
	}
	text, _ := json.Marshal(map[string]any{"accessBoundary": map[string]any{"accessBoundaryRules": []rule{
		{Resource: bucket, Permissions: []string{"inRole:roles/storage.legacyBucketReader"}}, objects,
	}}})
	return string(text)
}

// post sends something, and gives the answer; one that says no is errRefused.
func (m *Maker) post(ctx context.Context, to, body string, header map[string]string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	answer, err := m.client().Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode < 300:
		return text, nil
	case refuses(answer.StatusCode):
		return nil, errRefused
	}
	return nil, fmt.Errorf("the answer is %s", answer.Status)
}

// refuses reports whether the status of an answer says that another request would have the
// same answer.
func refuses(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}
