package vast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// ask is a machine, or a part of one, that its owner offers.
type ask = fetch.VastOffer

const (
	defaultDiskGB = 80
	mostOffers    = 5000
	mostAsks      = 64 // of one kind
)

// wanted is what a machine has to be like by the settings; what nobody set has a standard
// that is safe.
func wanted(settings map[string]any) fetch.VastSearch {
	number := func(key string, standard float64) float64 { return vm.Number(settings, key, standard) }
	w := fetch.VastSearch{
		Verified: true, Reliability: number("min_reliability", 0.95), Bandwidth: number("min_bandwidth", 100),
		DiskBandwidth: number("min_disk_bandwidth", 200), CUDA: number("min_cuda", 12), DiskGB: defaultDiskGB, Countries: vm.Texts(settings["countries"]),
	}
	w.Datacenter, _ = settings["datacenter_only"].(bool)
	if v, ok := settings["verified"].(bool); ok {
		w.Verified = v
	}
	for i, c := range w.Countries {
		w.Countries[i] = strings.ToUpper(c)
	}
	return w
}

func search(ctx context.Context, c *rest.Client, query map[string]any) ([]ask, error) {
	found, err := rest.Do[struct{ Offers []ask }](ctx, c, "POST", "/v0/bundles/", query)
	return found.Offers, err
}

// room are the machines that a launch may take, the best first. It is a CapacityError if
// there are none, or only dearer ones than were planned with.
func room(ctx context.Context, c *rest.Client, spec cloud.LaunchSpec) ([]ask, error) {
	o := spec.Offer
	like, err := fetch.VastKind(o.InstanceType)
	if err != nil {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: err}
	}
	w := wanted(spec.Settings)
	if code := (ask{Place: o.Region}).Country(); code != "" {
		if len(w.Countries) > 0 && !slices.Contains(w.Countries, code) {
			return nil, &cloud.InvalidError{Place: o.Place, Err: fmt.Errorf("vast.countries allows %s", strings.Join(w.Countries, ", "))}
		}
		w.Countries = []string{code}
	}
	w.DiskGB, w.Like = cmp.Or(spec.DiskGB, defaultDiskGB), like
	asks, err := search(ctx, c, w.Query(o.Spot, mostAsks))
	if err == nil && len(asks) == 0 {
		err = &cloud.CapacityError{Place: o.Place, Err: errors.New("nobody on Vast offers such a machine there now that passes the settings of vast")}
	}
	if err != nil {
		return nil, err
	}
	fetch.RankVast(asks, o.Spot)
	dearer := func(a ask) error {
		bare, _ := a.Price(o.Spot)
		return vm.RoseLive("Vast", o, bare)
	}
	within := slices.DeleteFunc(slices.Clone(asks), func(a ask) bool { return dearer(a) != nil })
	if len(within) > 0 {
		return within, nil
	}
	return nil, dearer(slices.MinFunc(asks, func(a, b ask) int {
		one, _ := a.Price(o.Spot)
		other, _ := b.Price(o.Spot)
		return cmp.Compare(one, other)
	}))
}
