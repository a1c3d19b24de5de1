package scoped

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/gcs"
	"github.com/skypilot-go/sky/internal/storage/granted"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/storage/rest"
	"github.com/skypilot-go/sky/internal/storage/s3"
)

// A cloud is a store that two callers may use, the server and who has narrower credentials,
// and a security token service.
type cloud struct {
	store  memory.Store
	whole  string // what the server sends
	narrow string // what those who have narrower credentials send

	mu     sync.Mutex
	asked  []url.Values
	answer func(w http.ResponseWriter, n int) // of the service; n counts from 1
	denied bool                               // the bucket refuses narrower credentials
}

func (c *cloud) serve(t *testing.T, handler func(credential string) http.Handler) (store, service string) {
	t.Helper()
	if err := c.store.Bucket("data").Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	a, b := handler(c.whole), handler(c.narrow)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch auth := r.Header.Get("Authorization"); {
		case strings.Contains(auth, c.whole):
			a.ServeHTTP(w, r)
		case c.denied:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
		default:
			b.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(text))
		c.mu.Lock()
		c.asked = append(c.asked, form)
		n := len(c.asked)
		answer := c.answer
		c.mu.Unlock()
		answer(w, n)
	}))
	t.Cleanup(sts.Close)
	return s.URL, sts.URL
}

func federation(w http.ResponseWriter, n int, end time.Time) {
	fmt.Fprintf(w, `<GetFederationTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetFederationTokenResult><Credentials>
<AccessKeyId>NARROW</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>session-%d</SessionToken><Expiration>%s</Expiration></Credentials></GetFederationTokenResult></GetFederationTokenResponse>`, n, end.UTC().Format(time.RFC3339))
}

func onAWS(t *testing.T, c *cloud) (*Maker, storage.Bucket, *time.Time) {
	t.Helper()
	c.whole, c.narrow = "WHOLE", "NARROW"
	store, service := c.serve(t, c.store.ServeS3)
	now := time.Now()
	if c.answer == nil {
		c.answer = func(w http.ResponseWriter, n int) { federation(w, n, now.Add(life)) }
	}
	b, err := s3.Open(t.Context(), storage.Location{Store: storage.S3, Bucket: "data", Region: "eu-west-1"}, s3.Options{Endpoint: store, Keys: func(context.Context) (s3.Keys, error) {
		return s3.Keys{AccessKey: "WHOLE", SecretKey: "secret-of-the-server"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := &Maker{AWS: service, Now: func() time.Time { return now }, Transport: transport(t), attempts: 1}
	return m, b, &now
}

func transport(t *testing.T) http.RoundTripper {
	x := storage.NewTransport()
	t.Cleanup(x.CloseIdleConnections)
	return x
}

func grant(t *testing.T, m *Maker, b storage.Bucket, u Use) storage.Grant {
	t.Helper()
	g, err := m.Grant(t.Context(), b, u)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestKeysOfAWSAreNarrowedAndRenewed(t *testing.T) {
	c := &cloud{}
	m, b, now := onAWS(t, c)
	g := grant(t, m, b, Use{ReadOnly: true, Prefix: "set/a"})
	if g.AccessKey != "NARROW" || g.SecretKey != "s" || g.SessionToken != "session-1" || g.Lasting || !strings.Contains(g.Whose, "to read set/a in this bucket alone") || g.Expires.IsZero() {
		t.Errorf("%#v has %q, %v", g, g.Whose, g.Expires)
	}
	asked := c.asked[0]
	policy := asked.Get("Policy")
	if asked.Get("Action") != "GetFederationToken" || asked.Get("DurationSeconds") != "43200" || !strings.Contains(policy, `"arn:aws:s3:::data/set/a*"`) || strings.Contains(policy, "Put") || strings.Contains(policy, "Delete") {
		t.Errorf("asked %v", asked)
	}
	// The same again, and other ones for another use.
	if again := grant(t, m, b, Use{ReadOnly: true, Prefix: "set/a"}); again != g || len(c.asked) != 1 {
		t.Errorf("they were made anew: %d", len(c.asked))
	}
	w := grant(t, m, b, Use{Prefix: "set/a"})
	if policy := c.asked[1].Get("Policy"); w.SessionToken != "session-2" || !strings.Contains(policy, `"arn:aws:s3:::data/*"`) || !strings.Contains(policy, "s3:PutObject") || strings.Contains(w.Whose, "read") {
		t.Errorf("to write: %s, %s", policy, w.Whose)
	}
	// Prefixes that are patterns do not become any.
	grant(t, m, b, Use{ReadOnly: true, Prefix: "a*"})
	if policy := c.asked[2].Get("Policy"); !strings.Contains(policy, `"arn:aws:s3:::data/*"`) {
		t.Errorf("a pattern: %s", policy)
	}
	// At half their life there are new ones; the service being away is no trouble until the end.
	*now = now.Add(life/2 + time.Minute)
	c.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusServiceUnavailable) }
	if got := grant(t, m, b, Use{}); got != w {
		t.Error("without the service, those that hold were not given")
	}
	*now = now.Add(life / 2)
	if got, err := m.Grant(t.Context(), b, Use{}); err == nil || got != (storage.Grant{}) {
		t.Errorf("without the service and without any that hold: %v, %v", got, err)
	}
	c.answer = func(w http.ResponseWriter, n int) { federation(w, 99, now.Add(life)) }
	if got := grant(t, m, b, Use{}); got.SessionToken != "session-99" {
		t.Errorf("later: %q", got.SessionToken)
	}
}

func TestWithoutNarrowerOnesTheServersAreGiven(t *testing.T) {
	for name, c := range map[string]*cloud{
		"no permission": {answer: func(w http.ResponseWriter, _ int) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized to perform: sts:GetFederationToken</Message></Error></ErrorResponse>`)
		}},
		"the bucket does not let them in": {denied: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, b, now := onAWS(t, c)
			for range 3 {
				if g := grant(t, m, b, Use{}); g.AccessKey != "WHOLE" || !g.Lasting || !g.Expires.IsZero() {
					t.Errorf("%q, lasting %v", g.AccessKey, g.Lasting)
				}
			}
			if len(c.asked) != 1 {
				t.Errorf("asked %d times", len(c.asked))
			}
			*now = now.Add(refusedFor + time.Minute) // somebody may have given the permission
			grant(t, m, b, Use{})
			if len(c.asked) != 2 {
				t.Errorf("an hour later, asked %d times", len(c.asked))
			}
		})
	}
}

// A server in place of AWS has no such service, and keys of roles run out by themselves.
func TestWhatIsNotNarrowed(t *testing.T) {
	for name, g := range map[string]storage.Grant{
		"another server":   {Store: storage.S3, AccessKey: "A", Endpoint: "http://minio:9000"},
		"a role":           {Store: storage.S3, AccessKey: "A", SessionToken: "s"},
		"another store":    {Store: storage.R2, AccessKey: "A"},
		"a signature":      {Store: storage.Azure, SAS: "sig=x"},
		"a public one":     {Store: storage.GCS},
		"an emulator":      {Store: storage.GCS, Token: "t", Endpoint: "http://localhost:4443"},
		"of Hugging Face":  {Store: storage.HF, Token: "t"},
		"a public account": {Store: storage.Azure},
	} {
		if way, _ := (&Maker{}).way(g); way != nil {
			t.Errorf("%s is narrowed", name)
		}
	}
	for _, at := range []string{"", "https://s3.eu-west-1.amazonaws.com", "https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com"} {
		if way, _ := (&Maker{}).way(storage.Grant{Store: storage.S3, AccessKey: "A", Endpoint: at}); way == nil {
			t.Errorf("keys of AWS at %q are not", at)
		}
	}
}

// Before a bucket is made, nothing can be known about what opens it.
func TestOfBucketsThatAreNotThereNothingIsRemembered(t *testing.T) {
	c := &cloud{}
	m, _, _ := onAWS(t, c)
	store, _ := c.serve(t, c.store.ServeS3)
	b, err := s3.Open(t.Context(), storage.Location{Store: storage.S3, Bucket: "later"}, s3.Options{Endpoint: store, Keys: func(context.Context) (s3.Keys, error) {
		return s3.Keys{AccessKey: "WHOLE", SecretKey: "s"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if g := grant(t, m, b, Use{}); g.AccessKey != "NARROW" || len(c.asked) != n+1 {
			t.Errorf("%q, asked %d times", g.AccessKey, len(c.asked))
		}
	}
}

func TestTokensOfGoogleAreNarrowed(t *testing.T) {
	c := &cloud{whole: "whole-token", narrow: "narrow-token"}
	store, service := c.serve(t, c.store.ServeGCS)
	c.answer = func(w http.ResponseWriter, _ int) {
		fmt.Fprint(w, `{"access_token":"narrow-token","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer"}`)
	}
	end := time.Now().Add(time.Hour)
	b, err := gcs.Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: "data"}, gcs.Options{Endpoint: store, Token: func(context.Context) (rest.Token, error) {
		return rest.Token{Value: "whole-token", Account: "me@example.com", Expires: end}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := &Maker{Google: service, Transport: transport(t)}
	g := grant(t, m, b, Use{ReadOnly: true, Prefix: "set/"})
	if g.Token != "narrow-token" || !g.Expires.Equal(end) {
		t.Errorf("%q until %v, want until %v", g.Token, g.Expires, end)
	}
	const want = `{"accessBoundary":{"accessBoundaryRules":[{"availableResource":"//storage.googleapis.com/projects/_/buckets/data","availablePermissions":["inRole:roles/storage.legacyBucketReader"]},` +
		`{"availableResource":"//storage.googleapis.com/projects/_/buckets/data","availablePermissions":["inRole:roles/storage.objectViewer"],"availabilityCondition":{"expression":"resource.name.startsWith('projects/_/buckets/data/objects/set/')"}}]}}`
	if asked := c.asked[0]; asked.Get("options") != want || asked.Get("subject_token") != "whole-token" {
		t.Errorf("asked %v", asked)
	}
	g = grant(t, m, b, Use{})
	if asked := c.asked[1].Get("options"); g.Token != "narrow-token" || !strings.Contains(asked, "objectAdmin") || strings.Contains(asked, "Condition") {
		t.Errorf("to write: %s", asked)
	}
	// Buckets with permissions of their objects let no such tokens in.
	c.denied = true
	if g := grant(t, &Maker{Google: service, Transport: transport(t)}, b, Use{}); g.Token != "whole-token" {
		t.Errorf("where it opens nothing: %q", g.Token)
	}
}

// signatureOf is what a signature is of these lines.
func signatureOf(key string, lines ...string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(strings.Join(lines, "\n")))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func TestAzuresCredentialsBecomeSignatures(t *testing.T) {
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	const from, to = "2030-01-02T11:45:00Z", "2030-01-03T00:00:00Z"
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.URL.RawQuery)
		switch {
		case r.URL.Query().Get("comp") == "userdelegationkey" && r.Header.Get("Authorization") == "Bearer token" && strings.Contains(string(body), "<Start>"+from+"</Start><Expiry>"+to+"</Expiry>"):
			fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><UserDelegationKey><SignedOid>oid</SignedOid><SignedTid>tid</SignedTid><SignedStart>%s</SignedStart><SignedExpiry>%s</SignedExpiry><SignedService>b</SignedService><SignedVersion>2023-11-03</SignedVersion><Value>%s</Value></UserDelegationKey>`,
				from, to, base64.StdEncoding.EncodeToString([]byte("delegated")))
		case r.URL.Query().Get("sig") != "":
			fmt.Fprint(w, `<EnumerationResults><Blobs/></EnumerationResults>`)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(srv.Close)
	m := &Maker{Transport: transport(t), Now: func() time.Time { return now }}
	at := storage.Location{Store: storage.Azure, Account: "acct", Bucket: "data"}
	for name, c := range map[string]struct {
		o    azure.Options
		use  Use
		want string
		more url.Values
	}{
		"a key, to read": {azure.Options{Key: base64.StdEncoding.EncodeToString([]byte("key"))}, Use{ReadOnly: true, Prefix: "unknown here"},
			signatureOf("key", "rl", from, to, "/blob/acct/data", "", "", "https,http", "2023-11-03", "c", "", "", "", "", "", "", ""), nil},
		"a key, to write": {azure.Options{Key: base64.StdEncoding.EncodeToString([]byte("key"))}, Use{},
			signatureOf("key", "rcwdl", from, to, "/blob/acct/data", "", "", "https,http", "2023-11-03", "c", "", "", "", "", "", "", ""), nil},
		"a token": {azure.Options{Token: func(context.Context) (rest.Token, error) { return rest.Token{Value: "token", Account: "me"}, nil }}, Use{},
			signatureOf("delegated", "rcwdl", from, to, "/blob/acct/data", "oid", "tid", from, to, "b", "2023-11-03", "", "", "", "", "https,http", "2023-11-03", "c", "", "", "", "", "", "", ""),
			url.Values{"skoid": {"oid"}, "sktid": {"tid"}, "skt": {from}, "ske": {to}, "sks": {"b"}, "skv": {"2023-11-03"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Endpoint = srv.URL
			b, err := azure.Open(at, c.o)
			if err != nil {
				t.Fatal(err)
			}
			g := grant(t, m, b, c.use)
			q, err := url.ParseQuery(g.SAS)
			if err != nil || q.Get("sig") != c.want || q.Get("se") != to || g.Key != "" || g.Token != "" || !g.Expires.Equal(now.Add(life)) {
				t.Errorf("%v, %v, until %v", q, err, g.Expires)
			}
			for k, v := range c.more {
				if !slices.Equal(q[k], v) {
					t.Errorf("%s is %q, want %q", k, q[k], v)
				}
			}
		})
	}
	// Who may not ask for keys of that kind hands on the token.
	b, err := azure.Open(at, azure.Options{Endpoint: srv.URL, Token: func(context.Context) (rest.Token, error) { return rest.Token{Value: "weak", Account: "you"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if g := grant(t, m, b, Use{}); g.Token != "weak" || g.SAS != "" {
		t.Errorf("without the permission: %q", g.SAS)
	}
}

// A signature that was renewed is used by the requests after that.
func TestSignaturesAreRenewed(t *testing.T) {
	var last string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.URL.Query().Get("sig")
		fmt.Fprint(w, `<EnumerationResults><Blobs/></EnumerationResults>`)
	}))
	t.Cleanup(srv.Close)
	g := storage.GrantTo(storage.Location{Store: storage.Azure, Account: "acct", Bucket: "data"}, srv.URL)
	g.SAS = "sv=1&sig=one"
	h := granted.Hold(g)
	b, err := granted.Open(t.Context(), h, transport(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		g.SAS = "sv=1&sig=" + want
		h.Renew(g)
		if _, err := b.List(t.Context(), storage.ListOptions{}); err != nil || last != want {
			t.Errorf("%q was sent, want %q; %v", last, want, err)
		}
	}
}
