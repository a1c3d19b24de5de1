package vm

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Base is what a provider with an Account says of itself, its account and what can be had,
// for it to embed beside its Provider.
type Base struct {
	Account
	Label    string         // its name for people
	Can      cloud.Features // what it cannot do, and its limits
	Refusals Refusals       // the meanings of the API's words
	// Probe is the path of a call that shows that credentials are good, of a cloud that does
	// not say whose they are. Others are asked by Who; nil: they do not tell either. Then
	// accounts are told apart by their keys.
	Probe string
	Who   func(ctx context.Context, c *rest.Client, keys map[string]string) (cloud.Identity, error)
	// Live are the offers of this moment; nil: a price list knows.
	Live func(ctx context.Context, c *rest.Client) ([]cloud.Offer, error)
}

func (b *Base) Name() string             { return b.Cloud }
func (b *Base) DisplayName() string      { return b.Label }
func (b *Base) Features() cloud.Features { return b.Can }

// Check asks whether the credentials are good, and whose they are. Without any it does no
// I/O.
func (b *Base) Check(ctx context.Context) (cloud.Identity, error) {
	c, keys, err := b.API()
	var who cloud.Identity
	switch {
	case err != nil:
	case b.Who != nil:
		who, err = b.Who(ctx, c, keys)
	default:
		_, err = rest.Do[any](ctx, c, "GET", b.Probe, nil)
	}
	if err != nil {
		return nil, b.refusal(ctx, cloud.Place{Cloud: b.Cloud}, err)
	}
	if who == nil {
		who = cloud.Identity{"the key " + b.CredentialStamp()}
	}
	return who, nil
}

// Offers are those of this moment; nil: a price list knows.
func (b *Base) Offers(ctx context.Context) ([]cloud.Offer, error) {
	if b.Live == nil {
		return nil, nil
	}
	c, _, err := b.API()
	if err != nil {
		return nil, err
	}
	all, err := b.Live(ctx, c)
	return all, b.refusal(ctx, cloud.Place{Cloud: b.Cloud}, err)
}

// Probed is a Base of a cloud that says beforehand whether there is room.
type Probed struct {
	Base
	// Room is why there is no room for so many machines of an offer; nil: there is some,
	// and sure says that the cloud said so for all of them.
	Room func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (sure bool, err error)
	// Stock is Room of a cloud that says how much there is; it is asked instead if it is there.
	Stock func(ctx context.Context, c *rest.Client, o cloud.Offer, nodes int) (stock cloud.Stock, sure bool, err error)
}

// Available reports whether there is room for so many machines of an offer.
func (b *Probed) Available(ctx context.Context, o cloud.Offer, nodes int) (cloud.Availability, error) {
	c, _, err := b.API()
	sure, stock := false, cloud.Stock("")
	switch {
	case err != nil:
	case b.Stock != nil:
		stock, sure, err = b.Stock(ctx, c, o, nodes)
	default:
		sure, err = b.Room(ctx, c, o, nodes)
	}
	a, err := verdict(ctx, b.refusal, o.Place, sure, err)
	if err == nil && a.Verdict != cloud.AvailableNone {
		a.Stock = stock
	}
	return a, err
}

func (b *Base) refusal(ctx context.Context, at cloud.Place, err error) error {
	return refusal(ctx, b.Refusals.Refusal, at, err)
}

// Each makes a call about each machine, at the path with its id in place of %s.
func (a *Account) Each(ctx context.Context, d Driver, machines []Machine, method, path string, body any) error {
	return Each(ctx, d, machines, func(ctx context.Context, m Machine) error {
		c, _, err := a.Of(m)
		if err == nil {
			_, err = rest.Do[any](ctx, c, method, fmt.Sprintf(path, url.PathEscape(m.ID)), body)
		}
		return err
	})
}

// Of is the client for a machine.
func (a *Account) Of(m Machine) (*rest.Client, map[string]string, error) {
	return a.forRegion(m.Region)
}

func (a *Account) forRegion(region string) (*rest.Client, map[string]string, error) {
	if a.Region == nil {
		return a.API()
	}
	return a.In(region)
}

// Drop is [Remove] for things that are removed by a DELETE: of says what each is for people, the
// path of that call, and its region, of clouds that are called there.
func Drop[T any](ctx context.Context, a *Account, d Driver, things []T, of func(T) (what, path, region string)) (left []string, err error) {
	name := func(t T) string { what, _, _ := of(t); return what }
	return Remove(d, things, name, func(t T) error {
		_, path, region := of(t)
		c, _, err := a.forRegion(region)
		if err == nil {
			_, err = rest.Do[any](ctx, c, "DELETE", path, nil)
		}
		return err
	})
}

// Gather asks each region for some of what there is, with the client for it, and returns all of
// that.
func Gather[T any](ctx context.Context, r *Regions, a *Account, ask func(ctx context.Context, c *rest.Client, region string) ([]T, error)) ([]T, error) {
	_, found, err := Everywhere(ctx, r, func(ctx context.Context, region string) ([]T, error) {
		c, _, err := a.In(region)
		if err != nil {
			return nil, err
		}
		return ask(ctx, c, region)
	})
	return slices.Concat(found...), err
}

// Unconnected is for drivers whose machines bring all that they need.
type Unconnected struct{}

// Connect has nothing to do.
func (Unconnected) Connect(context.Context, cloud.LaunchSpec) error { return nil }

// Disconnect has nothing to do.
func (Unconnected) Disconnect(context.Context, cloud.ClusterID, bool) ([]string, error) {
	return nil, nil
}
