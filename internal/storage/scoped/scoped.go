// Package scoped makes credentials to hand to other machines: such as run out, and are for
// one bucket and what is done with it alone, where a cloud makes them. Elsewhere they are what
// opens the bucket here.
package scoped

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/granted"
)

// A Use is what another machine does with a bucket.
type Use struct {
	ReadOnly bool
	// Prefix is what the keys of the objects that are read begin with; lists may be of the
	// whole bucket. It counts for reading alone, and where the cloud knows prefixes.
	Prefix string
}

const (
	// life is how long credentials hold, if the cloud does not say less: a server may be away
	// for half of it.
	life = 12 * time.Hour
	// skew is how far clocks may differ.
	skew = 15 * time.Minute
	// refusedFor is how long a cloud that made none is not asked again.
	refusedFor = time.Hour
)

// A Maker makes credentials, and keeps them until half their life is over. The zero value is
// good. Its methods may be called concurrently.
type Maker struct {
	Transport http.RoundTripper // nil: http.DefaultTransport
	Now       func() time.Time  // nil: time.Now
	// AWS and Google are servers in place of those clouds' security token services.
	AWS, Google string
	attempts    int // of a request to AWS; 0: the SDK's

	mu   sync.Mutex
	made map[made]*entry
}

// made names credentials: what they were made of, and for which use.
type made struct {
	bucket, endpoint, identity string
	use                        Use
}

type entry struct {
	mu      sync.Mutex
	grant   storage.Grant
	since   time.Time // zero: there are none
	refused time.Time // when the cloud made none
}

// errRefused means that the cloud makes no such credentials for this caller, or that they do
// not open the bucket.
var errRefused = errors.New("there are no narrower credentials")

// maker makes narrower credentials of a grant.
type maker func(ctx context.Context, g storage.Grant, u Use) (storage.Grant, error)

// Grant is what opens a bucket on another machine.
func (m *Maker) Grant(ctx context.Context, b storage.Bucket, u Use) (storage.Grant, error) {
	driver, ok := storage.Driver(b).(storage.Granter)
	if !ok {
		return storage.GrantTo(b.Location(), ""), nil
	}
	whole, err := driver.Grant(ctx)
	if err != nil {
		return whole, err
	}
	narrow, identity := m.way(whole)
	if narrow == nil {
		return whole, nil
	}
	if !u.ReadOnly || whole.Store == storage.Azure || !plain(u.Prefix) {
		u.Prefix = ""
	}
	e := m.entry(made{whole.Location().String(), whole.Endpoint, identity, u})
	e.mu.Lock()
	defer e.mu.Unlock()
	now := m.now()
	if !e.since.IsZero() && now.Before(e.since.Add(e.grant.Expires.Sub(e.since)/2)) {
		return e.grant, nil
	}
	if !e.refused.IsZero() && now.Before(e.refused.Add(refusedFor)) {
		return whole, nil
	}
	g, err := narrow(ctx, whole, u)
	if err == nil {
		err = m.opens(ctx, g, u)
	}
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key == "" {
		return g, nil // what they open is seen when the bucket is there
	}
	switch {
	case err == nil:
		e.grant, e.since, e.refused = g, now, time.Time{}
		return g, nil
	case ctx.Err() != nil:
		return storage.Grant{}, context.Cause(ctx)
	case errors.Is(err, errRefused):
		e.refused, e.since = now, time.Time{}
		return whole, nil
	case !e.since.IsZero() && now.Add(skew).Before(e.grant.Expires):
		return e.grant, nil // which holds for a while
	}
	return storage.Grant{}, fmt.Errorf("making credentials for %s alone: %w", b.Location(), err)
}

// way is how a grant is made narrower, and whose it is; nil: there is none.
func (m *Maker) way(g storage.Grant) (narrow maker, identity string) {
	switch {
	case g.Store == storage.S3 && g.AccessKey != "" && g.SessionToken == "" && (m.AWS != "" || ofAWS(g.Endpoint)):
		return m.federated, g.AccessKey
	case g.Store == storage.GCS && g.Token != "" && (m.Google != "" || g.Endpoint == ""):
		return m.downscoped, g.Whose
	case g.Store == storage.Azure && g.Key != "":
		return m.signedByKey, g.Key
	case g.Store == storage.Azure && g.Token != "":
		return m.signedByDelegation, g.Whose
	}
	return nil, ""
}

func (m *Maker) entry(k made) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for k, e := range m.made { // of what nobody asks for any more
		if e.mu.TryLock() {
			if now.After(e.grant.Expires) && now.After(e.refused.Add(refusedFor)) && !(e.since.IsZero() && e.refused.IsZero()) {
				delete(m.made, k)
			}
			e.mu.Unlock()
		}
	}
	e := m.made[k]
	if e == nil {
		if m.made == nil {
			m.made = map[made]*entry{}
		}
		e = &entry{}
		m.made[k] = e
	}
	return e
}

func (m *Maker) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

func (m *Maker) client() *http.Client {
	return &http.Client{Transport: m.Transport, Timeout: time.Minute}
}

// opens finds out whether credentials do what they are for: rules of the bucket may name who
// they were made of, or it may be such that the cloud narrows nothing.
func (m *Maker) opens(ctx context.Context, g storage.Grant, u Use) error {
	transport := m.Transport
	if transport == nil {
		own := storage.NewTransport()
		defer own.CloseIdleConnections()
		transport = own
	}
	driver, err := granted.Open(ctx, granted.Hold(g), transport)
	if err != nil {
		return err
	}
	b := storage.Retry(driver, storage.Retries{})
	_, err = b.List(ctx, storage.ListOptions{Prefix: u.Prefix, Max: 1})
	if err == nil && !u.ReadOnly && b.Caps().Multipart {
		var up storage.Upload // of which nobody sees anything
		if up, err = b.Start(ctx, ".sky-probe-"+uuid.NewString(), storage.PutOptions{}); err == nil {
			err = b.Abort(ctx, up)
		}
	}
	_, denied := errors.AsType[*storage.DeniedError](err)
	_, unknown := errors.AsType[*storage.CredentialsError](err)
	if denied || unknown {
		return errRefused
	}
	return err
}

// whose is whose narrower credentials are, for people.
func whose(g storage.Grant, u Use) string {
	switch {
	case u.ReadOnly && u.Prefix != "":
		return g.Whose + ", to read " + u.Prefix + " in this bucket alone"
	case u.ReadOnly:
		return g.Whose + ", to read this bucket alone"
	}
	return g.Whose + ", for this bucket alone"
}

// without is a grant without its credentials.
func without(g storage.Grant) storage.Grant { return storage.GrantTo(g.Location(), g.Endpoint) }

// plain reports whether a prefix means itself in a pattern and between quotes, and is short
// enough for a policy.
func plain(prefix string) bool {
	return len(prefix) <= 512 && !strings.ContainsAny(prefix, "*?$'\"\\{}\n\r")
}
