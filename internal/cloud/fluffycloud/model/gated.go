package model

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Gated is api with each call made through gate, which may refuse it, or keep its
// answer to itself: then the call had its effect. op names the call, such as
// "instances.create".
func Gated(api fluffyapi.API, gate func(op string, call func() error) error) fluffyapi.API {
	return gated{api, gate}
}

type gated struct {
	api  fluffyapi.API
	gate func(op string, call func() error) error
}

func through[T any](g gated, op string, call func() (T, error)) (v T, err error) {
	var none T
	err = g.gate(op, func() (err error) { v, err = call(); return err })
	if err != nil {
		return none, err
	}
	return v, nil
}

func (g gated) Account(ctx context.Context) (fluffyapi.Account, error) {
	return through(g, "account", func() (fluffyapi.Account, error) { return g.api.Account(ctx) })
}

func (g gated) Offers(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Offer], error) {
	return through(g, "offers", func() (fluffyapi.Page[fluffyapi.Offer], error) { return g.api.Offers(ctx, q) })
}

func (g gated) Available(ctx context.Context, zone, machine string, spot bool) (int, error) {
	return through(g, "available", func() (int, error) { return g.api.Available(ctx, zone, machine, spot) })
}

func (g gated) Quotas(ctx context.Context, region string) ([]fluffyapi.Quota, error) {
	return through(g, "quotas", func() ([]fluffyapi.Quota, error) { return g.api.Quotas(ctx, region) })
}

func (g gated) Create(ctx context.Context, c fluffyapi.Create) (fluffyapi.Instance, error) {
	return through(g, "instances.create", func() (fluffyapi.Instance, error) { return g.api.Create(ctx, c) })
}

func (g gated) Instance(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return through(g, "instances.get", func() (fluffyapi.Instance, error) { return g.api.Instance(ctx, id) })
}

func (g gated) Instances(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Instance], error) {
	return through(g, "instances.list", func() (fluffyapi.Page[fluffyapi.Instance], error) { return g.api.Instances(ctx, q) })
}

func (g gated) Start(ctx context.Context, id string, s fluffyapi.Start) (fluffyapi.Instance, error) {
	return through(g, "instances.start", func() (fluffyapi.Instance, error) { return g.api.Start(ctx, id, s) })
}

func (g gated) Stop(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return through(g, "instances.stop", func() (fluffyapi.Instance, error) { return g.api.Stop(ctx, id) })
}

func (g gated) Terminate(ctx context.Context, id string) (fluffyapi.Instance, error) {
	return through(g, "instances.terminate", func() (fluffyapi.Instance, error) { return g.api.Terminate(ctx, id) })
}

func (g gated) SetWhenOff(ctx context.Context, id string, w fluffyapi.WhenOff) (fluffyapi.Instance, error) {
	return through(g, "instances.when_off", func() (fluffyapi.Instance, error) { return g.api.SetWhenOff(ctx, id, w) })
}

func (g gated) CreateImage(ctx context.Context, c fluffyapi.CreateImage) (fluffyapi.Image, error) {
	return through(g, "images.create", func() (fluffyapi.Image, error) { return g.api.CreateImage(ctx, c) })
}

func (g gated) Images(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Image], error) {
	return through(g, "images.list", func() (fluffyapi.Page[fluffyapi.Image], error) { return g.api.Images(ctx, q) })
}

func (g gated) DeleteImage(ctx context.Context, id string) error {
	return g.gate("images.delete", func() error { return g.api.DeleteImage(ctx, id) })
}

func (g gated) PutFirewall(ctx context.Context, f fluffyapi.Firewall) error {
	return g.gate("firewalls.put", func() error { return g.api.PutFirewall(ctx, f) })
}

func (g gated) Firewalls(ctx context.Context, q fluffyapi.Query) (fluffyapi.Page[fluffyapi.Firewall], error) {
	return through(g, "firewalls.list", func() (fluffyapi.Page[fluffyapi.Firewall], error) { return g.api.Firewalls(ctx, q) })
}

func (g gated) DeleteFirewall(ctx context.Context, name string) error {
	return g.gate("firewalls.delete", func() error { return g.api.DeleteFirewall(ctx, name) })
}
