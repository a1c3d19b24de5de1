package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/table"
)

// commonGPUs are listed first, in this order.
var commonGPUs = []string{
	"A10", "A10G", "A100", "A100-80GB", "B200", "GH200", "H100", "H200", "L4", "L40S", "T4", "V100", "V100-32GB",
}

// commonTPUs are listed second.
var commonTPUs = []string{"tpu-v2-8", "tpu-v3-8", "tpu-v4-8", "tpu-v4-16", "tpu-v4-32", "tpu-v5litepod-1", "tpu-v5litepod-4", "tpu-v5litepod-8", "tpu-v5p-8", "tpu-v6e-1", "tpu-v6e-4", "tpu-v6e-8"}

// countsText lists common accelerators and in which quantities they come.
func countsText(t *term.Term, counts map[string][]float64) string {
	gpus, tpus := countsTable("COMMON_GPU", commonGPUs, counts), countsTable("GOOGLE_TPU", commonTPUs, counts)
	text := t.Table(gpus)
	if len(tpus.Rows) > 0 {
		text += "\n" + t.Table(tpus)
	}
	return text
}

// countsTable lists those of some accelerators that there are.
func countsTable(title string, names []string, counts map[string][]float64) *table.Table {
	tab := table.New(title, "AVAILABLE_QUANTITIES").Whole(title).Prose("AVAILABLE_QUANTITIES")
	for _, name := range names {
		if q := counts[name]; len(q) > 0 {
			tab.Add(name, quantities(q))
		}
	}
	return tab
}

func quantities(list []float64) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(list)))
	words := make([]string, len(sorted))
	for i, n := range sorted {
		words[i] = format.Number(n)
	}
	return strings.Join(words, ", ")
}

// offersText has one table per accelerator that fits the query.
func offersText(t *term.Term, offers map[string][]api.AcceleratorOffer, q gpuQuery, o gpusOptions) string {
	if len(offers) == 0 {
		text := fmt.Sprintf("Resources '%s' not found", q.name)
		if q.quantity != nil {
			text = fmt.Sprintf("Resources '%s' with requested quantity %s not found", q.name, format.Number(*q.quantity))
		}
		where := "in cloud catalogs"
		if q.place.Cloud != "" {
			where = "on " + strings.ToUpper(q.place.Cloud)
		}
		return fmt.Sprintf("%s %s. To show available accelerators, run: sky gpus list --all\n", text, where)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(offers)) {
		parts = append(parts, t.Table(offerTable(offers[name], true)))
	}
	return strings.Join(parts, "\n")
}

// allOffersText lists everything there is.
func allOffersText(t *term.Term, offers map[string][]api.AcceleratorOffer) string {
	counts := map[string][]float64{}
	for name, list := range offers {
		for _, o := range list {
			counts[name] = append(counts[name], o.AcceleratorCount)
		}
	}
	text := countsText(t, counts)
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(name string) bool {
		return slices.Contains(commonGPUs, name) || slices.Contains(commonTPUs, name)
	})
	text += "\n" + t.Table(countsTable("OTHER_GPU", others, counts)) + "\n" + t.Style(term.Title, "Offers") + "\n"
	for _, name := range slices.Sorted(maps.Keys(offers)) {
		text += "\n" + t.Table(offerTable(offers[name], false))
	}
	return text
}

// offerTable lists the offers of one accelerator: clouds with the cheapest
// first, and within a cloud by price.
func offerTable(list []api.AcceleratorOffer, region bool) *table.Table {
	tab := table.New("GPU", "QTY", "CLOUD", "INSTANCE_TYPE", "DEVICE_MEM", "vCPUs", "HOST_MEM", "HOURLY_PRICE", "HOURLY_SPOT_PRICE").
		Whole("GPU", "INSTANCE_TYPE", "REGION").Optional("DEVICE_MEM", "HOST_MEM", "vCPUs", "HOURLY_SPOT_PRICE")
	if region {
		tab.Header = append(tab.Header, "REGION")
	}
	for _, o := range sortOffers(list) {
		instance := "(attachable)"
		if o.InstanceType != nil && *o.InstanceType != "" {
			instance = *o.InstanceType
		}
		row := []string{
			o.AcceleratorName, format.Float(o.AcceleratorCount), o.Cloud, instance, gigabytes(o.DeviceMemory), plain(o.CPUCount),
			gigabytes(o.Memory), format.Price(o.Price, 3), format.Price(o.SpotPrice, 3),
		}
		if region {
			row = append(row, format.OrDash(text(o.Region)))
		}
		tab.Add(row...)
	}
	return tab
}

func gigabytes(f *float64) string {
	if f == nil || *f == 0 {
		return "-"
	}
	return format.Number(math.Floor(*f)) + "GB"
}

func plain(f *float64) string {
	if f == nil || *f == 0 {
		return "-"
	}
	return format.Number(*f)
}

func sortOffers(list []api.AcceleratorOffer) []api.AcceleratorOffer {
	price := func(p *float64) float64 {
		if p == nil || *p == 0 {
			return math.Inf(1)
		}
		return *p
	}
	type best struct{ price, spot float64 }
	bests := map[string]best{}
	for _, o := range list {
		b, ok := bests[o.Cloud]
		if !ok {
			b = best{math.Inf(1), math.Inf(1)}
		}
		bests[o.Cloud] = best{min(b.price, price(o.Price)), min(b.spot, price(o.SpotPrice))}
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(x, y api.AcceleratorOffer) int {
		a, b := bests[x.Cloud], bests[y.Cloud]
		return cmp.Or(
			cmp.Compare(a.price, b.price), cmp.Compare(a.spot, b.spot), strings.Compare(x.Cloud, y.Cloud),
			cmp.Compare(price(x.Price), price(y.Price)), cmp.Compare(price(x.SpotPrice), price(y.SpotPrice)),
			strings.Compare(text(x.InstanceType), text(y.InstanceType)),
		)
	})
	return sorted
}

// page shows a long text through the user's pager, when there is a terminal.
func (a *app) page(ctx context.Context, text string) error {
	pager := a.env("PAGER")
	if pager == "" {
		pager = "less"
	}
	words := strings.Fields(pager)
	if !a.t.OutTTY || len(words) == 0 {
		a.t.Print(text)
		return nil
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), os.Stdout, os.Stderr
	cmd.Env = append(slices.Clone(a.environ), "LESS=FRX")
	if err := cmd.Start(); err != nil {
		a.t.Print(text)
		return nil
	}
	return cmd.Wait()
}
