package vm

import (
	"cmp"
	"net/http"
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
	Authorize func(keys map[string]string) func(*http.Request) error // as rest.Bearer
	clients   rest.Clients
}

// API is the client for the credentials of this moment, and those. Each set of them has
// one client, and so one pace.
func (a *Account) API() (*rest.Client, map[string]string, error) {
	keys, err := a.Read()
	if err != nil {
		return nil, nil, err
	}
	endpoint, err := Endpoint(a.Cloud, a.Tuning.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	return a.clients.For(a.Stamp(keys)+" "+endpoint, func() rest.Options {
		o := a.REST
		o.Endpoint, o.Transport, o.Paces, o.Busy = endpoint, a.Tuning.Transport, a.Tuning.Paces, a.Tuning.Busy
		o.Authorize = a.Authorize(keys)
		return o
	}), keys, nil
}
