package vm

import (
	"cmp"
	"net/http"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Tuning changes how a cloud is reached. The zero value is the user's credentials, and
// what the cloud allows.
type Tuning struct {
	Endpoint      string            // of the API
	Transport     http.RoundTripper // that makes calls
	Home          string            // the folder with the credentials
	Poll, Timeout time.Duration     // as in Options
	Settle        time.Duration
	Paces         []rest.Pace // nil: the cloud's; none: as often as one likes
	Busy          int         // as in rest.Options
}

// Or is the tuning with defaults for what is not set.
func (t Tuning) Or(d Tuning) Tuning {
	t.Endpoint, t.Home = cmp.Or(t.Endpoint, d.Endpoint), cmp.Or(t.Home, d.Home)
	t.Poll, t.Timeout, t.Settle = cmp.Or(t.Poll, d.Poll), cmp.Or(t.Timeout, d.Timeout), cmp.Or(t.Settle, d.Settle)
	t.Busy = cmp.Or(t.Busy, d.Busy)
	if t.Paces == nil {
		t.Paces = d.Paces
	}
	if t.Transport == nil {
		t.Transport = d.Transport
	}
	return t
}

// Account is an API that is called with the credentials of a file, for a provider to
// embed.
type Account struct {
	keyfile.File
	Tuning    Tuning
	REST      rest.Options                                           // besides what File and Tuning say
	Authorize func(keys map[string]string) func(*http.Request) error // as rest.Bearer; all hosts share it

	// An API that has many hosts is called at Host behind https://, and about what is in a region
	// at that of Region, with Prefix behind both. Nil: it is called at Tuning.Endpoint.
	Host   func(keys map[string]string) string
	Region func(region string) string
	Prefix string

	clients rest.Clients

	mu        sync.Mutex
	stamp     string // of the credentials that authorize is for
	authorize func(*http.Request) error
}

// API is the client for the credentials of this moment, and those. Each set of them has
// one client of a host, and so one pace.
func (a *Account) API() (*rest.Client, map[string]string, error) {
	keys, err := a.Read()
	if err != nil {
		return nil, nil, err
	}
	if a.Host != nil {
		return a.at(keys, a.Host(keys))
	}
	return a.client(keys, a.Tuning.Endpoint, "")
}

// In is the client for what is in a region.
func (a *Account) In(region string) (*rest.Client, map[string]string, error) {
	return a.At(a.Region(region))
}

// At is the client for a host of the API.
func (a *Account) At(host string) (*rest.Client, map[string]string, error) {
	keys, err := a.Read()
	if err != nil {
		return nil, nil, err
	}
	return a.at(keys, host)
}

func (a *Account) at(keys map[string]string, host string) (*rest.Client, map[string]string, error) {
	return a.client(keys, "https://"+host, host)
}

func (a *Account) client(keys map[string]string, standard, host string) (*rest.Client, map[string]string, error) {
	endpoint, err := Endpoint(a.Cloud, standard)
	if err != nil {
		return nil, nil, err
	}
	stamp := a.Stamp(keys)
	a.mu.Lock()
	if a.authorize == nil || a.stamp != stamp {
		a.stamp, a.authorize = stamp, a.Authorize(keys)
	}
	authorize := a.authorize
	a.mu.Unlock()
	return a.clients.For(stamp+" "+host+" "+endpoint, func() rest.Options {
		o := a.REST
		o.Endpoint, o.Host, o.Transport, o.Paces, o.Busy = endpoint+a.Prefix, host, a.Tuning.Transport, a.Tuning.Paces, a.Tuning.Busy
		o.Authorize = authorize
		return o
	}), keys, nil
}
