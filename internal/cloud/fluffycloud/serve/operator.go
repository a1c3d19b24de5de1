package serve

import (
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// Capacity is the body of /admin/capacity. With Left the zone has room for so
// many more, else for Total in all (-1: unlimited).
type Capacity struct {
	Zone  string `json:"zone"`
	Type  string `json:"type"`
	Total int    `json:"total"`
	Left  *int   `json:"left,omitempty"`
}

// Quota is the body of /admin/quota. With Left the account may have so many more
// instances of Type in Zone, else Limit of Family in Region (-1: unlimited).
type Quota struct {
	Account string `json:"account"`
	Region  string `json:"region,omitempty"`
	Family  string `json:"family,omitempty"`
	Limit   int    `json:"limit"`
	Zone    string `json:"zone,omitempty"`
	Type    string `json:"type,omitempty"`
	Spot    bool   `json:"spot,omitempty"`
	Left    *int   `json:"left,omitempty"`
}

// Price is the body of /admin/price.
type Price struct {
	Zone  string  `json:"zone"`
	Type  string  `json:"type"`
	Spot  bool    `json:"spot"`
	Price float64 `json:"price"`
}

// Event is the body of what happens to an instance.
type Event struct {
	Reason string  `json:"reason,omitempty"`
	After  float64 `json:"after,omitempty"` // seconds of notice
}

// Clock is the body of /admin/clock and /admin/delays, in seconds.
type Clock struct {
	Skew float64 `json:"skew,omitempty"`
	Boot float64 `json:"boot,omitempty"`
	Halt float64 `json:"halt,omitempty"`
}

// Inventory is everything that exists.
type Inventory struct {
	Instances []model.Machine      `json:"instances"`
	Firewalls []fluffyapi.Firewall `json:"firewalls"`
	Images    []fluffyapi.Image    `json:"images"`
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// operatorRoutes are what an operator can do to the cloud and its customers.
func (s *server) operatorRoutes(route func(string, func(*http.Request) (any, error))) {
	c := s.cloud
	done := struct{}{}
	route("GET /admin/inventory", func(*http.Request) (any, error) {
		return Inventory{Instances: c.Machines(), Firewalls: c.Firewalls(), Images: c.Images()}, nil
	})
	route("GET /admin/ledger", func(*http.Request) (any, error) { return c.Ledger(), nil })
	route("GET /admin/faults", func(*http.Request) (any, error) { return c.Faults(), nil })
	route("POST /admin/faults", func(r *http.Request) (any, error) {
		f, err := body[model.Fault](r)
		if err != nil {
			return nil, err
		}
		return done, c.Inject(f)
	})
	route("DELETE /admin/faults", func(r *http.Request) (any, error) {
		c.Remove(r.URL.Query().Get("id"))
		return done, nil
	})
	route("POST /admin/capacity", func(r *http.Request) (any, error) {
		in, err := body[Capacity](r)
		switch {
		case err != nil:
			return nil, err
		case in.Left != nil:
			return done, c.Leave(in.Zone, in.Type, *in.Left)
		}
		return done, c.SetCapacity(in.Zone, in.Type, in.Total)
	})
	route("POST /admin/quota", func(r *http.Request) (any, error) {
		in, err := body[Quota](r)
		switch {
		case err != nil:
			return nil, err
		case in.Left != nil:
			return done, c.LeaveQuota(in.Account, in.Zone, in.Type, in.Spot, *in.Left)
		}
		return done, c.SetQuota(in.Account, in.Region, in.Family, in.Limit)
	})
	route("POST /admin/price", func(r *http.Request) (any, error) {
		in, err := body[Price](r)
		if err != nil {
			return nil, err
		}
		return done, c.SetPrice(in.Zone, in.Type, in.Spot, in.Price)
	})
	route("POST /admin/trace", func(r *http.Request) (any, error) {
		in, err := body[[]model.Point](r)
		if err != nil {
			return nil, err
		}
		return done, c.Play(in)
	})
	route("POST /admin/clock", func(r *http.Request) (any, error) {
		in, err := body[Clock](r)
		if err != nil {
			return nil, err
		}
		return done, c.Skew(seconds(in.Skew))
	})
	route("POST /admin/delays", func(r *http.Request) (any, error) {
		in, err := body[Clock](r)
		if err != nil {
			return nil, err
		}
		boot, halt := seconds(in.Boot), seconds(in.Halt)
		c.SetDelays(model.Delay{Min: boot, Max: boot}, model.Delay{Min: halt, Max: halt})
		return done, nil
	})
	event := func(what string, f func(id string, e Event) error) {
		route("POST /admin/instances/{id}/"+what, func(r *http.Request) (any, error) {
			e, err := body[Event](r)
			if err != nil {
				return nil, err
			}
			return done, f(r.PathValue("id"), e)
		})
	}
	event("kill", func(id string, e Event) error {
		if e.Reason == "" {
			e.Reason = "the machine broke"
		}
		return c.Kill(id, e.Reason)
	})
	event("halt", func(id string, _ Event) error { return c.Halt(id) })
	event("preempt", func(id string, e Event) error { return c.Preempt(id, seconds(e.After)) })
}
