package azure_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// subscriptions are several behind one transport: each is a fake of its own, and nil is one
// that refuses.
type subscriptions struct {
	own   *azurefake.Fake
	other map[string]*azurefake.Fake
	mu    sync.Mutex
	calls map[string]int
}

func (s *subscriptions) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	if r.URL.Path == "/subscriptions" {
		all := []string{fmt.Sprintf(`{"subscriptionId":%q,"state":"Enabled"}`, azurefake.Subscription), `{"subscriptionId":"disabled-one","state":"Disabled"}`}
		for _, id := range slices.Sorted(maps.Keys(s.other)) {
			all = append(all, fmt.Sprintf(`{"subscriptionId":%q,"state":"Enabled"}`, id))
		}
		return answer(200, `{"value":[`+strings.Join(all, ",")+`]}`)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/subscriptions/"), "/")
	s.mu.Lock()
	s.calls[id]++
	s.mu.Unlock()
	fake, ok := s.other[id]
	switch {
	case !ok:
		return s.own.RoundTrip(r)
	case fake == nil:
		return answer(403, `{"error":{"code":"AuthorizationFailed","message":"The client does not have authorization to perform action 'Microsoft.Resources/subscriptions/resources/read'."}}`)
	}
	to := r.Clone(r.Context())
	to.URL.Path, to.URL.RawPath = strings.Replace(to.URL.Path, id, azurefake.Subscription, 1), ""
	to.Header.Set("Authorization", "Bearer "+fake.Token())
	got, err := fake.RoundTrip(to)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, err
	}
	body = bytes.ReplaceAll(body, []byte(azurefake.Subscription), []byte(id))
	got.Body, got.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	for _, values := range got.Header {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], azurefake.Subscription, id)
		}
	}
	return got, nil
}

// A sweep finds an installation's machines in all subscriptions with a bounded number of
// calls, names those that it cannot read, and ends machines where they are.
func TestMachinesInOtherSubscriptionsAreListedAndEnded(t *testing.T) {
	const there, locked = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	synctest.Test(t, func(t *testing.T) {
		own, provider := start(t, nil)
		far, farProvider := start(t, nil)
		mine := cloud.ClusterID{Installation: "i1", Name: "c1", Hash: "h1"}
		for _, id := range []cloud.ClusterID{mine, {Installation: "i2", Name: "c1", Hash: "h9"}} {
			spec := cloud.LaunchSpec{ID: id, Nodes: 1, Token: "t", Offer: here, AuthorizedKey: key}
			p := farProvider(quick)
			if err := p.Prepare(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Launch(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
		many := &subscriptions{own: own, other: map[string]*azurefake.Fake{there: far, locked: nil}, calls: map[string]int{}}
		tuning := quick
		tuning.Transport = many
		p := provider(tuning)

		nodes, unread, err := p.ListAccounts(t.Context(), "i1")
		if err != nil || len(nodes) != 1 || nodes[0].Account != there || nodes[0].Hash != "h1" {
			t.Fatalf("%+v, %v", nodes, err)
		}
		if _, ok := unread[0].Err.(*cloud.PermissionError); len(unread) != 1 || unread[0].Name != locked || !ok {
			t.Errorf("not read: %+v", unread)
		}
		for id, n := range many.calls {
			if n > 5 { // what has tags, machines and their states, interfaces, addresses
				t.Errorf("%d calls about %s", n, id)
			}
		}
		if many.calls["disabled-one"] > 0 {
			t.Error("a subscription was asked that is disabled")
		}

		if err := p.Terminate(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		left := strings.Join(far.Inventory(), "\n")
		if strings.Contains(left, vm.Digest(mine)) || !strings.Contains(left, vm.Digest(cloud.ClusterID{Installation: "i2", Name: "c1", Hash: "h9"})) {
			t.Errorf("left in the subscription:\n%s", left)
		}
		if nodes, err := p.Nodes(t.Context(), mine); err != nil || len(nodes) > 0 {
			t.Errorf("%v, %v", nodes, err)
		}
	})
}
