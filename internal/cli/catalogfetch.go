package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// fetcher is how one cloud's price list is rebuilt: which variables of the
// environment hold what it needs, and the fetcher made of them.
type fetcher struct {
	needs []string
	make  func(env func(string) string) fetch.Fetcher
}

func token(env func(string) string, key string) fetch.API { return fetch.API{Token: env(key)} }

// fetchers lists the clouds whose price interfaces are known.
var fetchers = map[string]fetcher{
	"aws": {[]string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, func(env func(string) string) fetch.Fetcher {
		return fetch.AWS{Keys: fetch.AWSKeys{AccessKey: env("AWS_ACCESS_KEY_ID"), SecretKey: env("AWS_SECRET_ACCESS_KEY"), SessionToken: env("AWS_SESSION_TOKEN")},
			Regions: fields(env("AWS_REGIONS"))}
	}},
	"azure": {[]string{"AZURE_ACCESS_TOKEN", "AZURE_SUBSCRIPTION_ID"}, func(env func(string) string) fetch.Fetcher {
		return fetch.Azure{API: token(env, "AZURE_ACCESS_TOKEN"), Subscription: env("AZURE_SUBSCRIPTION_ID"), Regions: fields(env("AZURE_REGIONS"))}
	}},
	"gcp": {[]string{"GCP_ACCESS_TOKEN", "GCP_PROJECT"}, func(env func(string) string) fetch.Fetcher {
		return fetch.GCP{API: token(env, "GCP_ACCESS_TOKEN"), Project: env("GCP_PROJECT")}
	}},
	"lambda": {[]string{"LAMBDA_API_KEY"}, func(env func(string) string) fetch.Fetcher {
		return fetch.Lambda{API: token(env, "LAMBDA_API_KEY")}
	}},
	"runpod": {[]string{"RUNPOD_API_KEY"}, func(env func(string) string) fetch.Fetcher {
		return fetch.RunPod{API: token(env, "RUNPOD_API_KEY")}
	}},
	"cudo": {nil, func(env func(string) string) fetch.Fetcher { return fetch.Cudo{API: token(env, "CUDO_API_KEY")} }},
	"vast": {nil, func(env func(string) string) fetch.Fetcher { return fetch.Vast{API: token(env, "VAST_API_KEY")} }},
	"do": {[]string{"DIGITALOCEAN_TOKEN"}, func(env func(string) string) fetch.Fetcher {
		return fetch.DigitalOcean{API: token(env, "DIGITALOCEAN_TOKEN")}
	}},
	"fluidstack": {[]string{"FLUIDSTACK_API_KEY"}, func(env func(string) string) fetch.Fetcher {
		return fetch.FluidStack{API: token(env, "FLUIDSTACK_API_KEY")}
	}},
	"oci": {nil, func(func(string) string) fetch.Fetcher { return fetch.OCI{} }},
}

func (a *app) catalogFetchCommand() *cobra.Command {
	var out string
	clouds := slices.Sorted(maps.Keys(fetchers))
	var needs strings.Builder
	for _, c := range clouds {
		if n := fetchers[c].needs; len(n) > 0 {
			fmt.Fprintf(&needs, "\n%-10s needs %s", c, strings.Join(n, ", "))
		} else {
			fmt.Fprintf(&needs, "\n%-10s needs nothing", c)
		}
	}
	return a.build(command{
		name: "fetch", args: "CLOUD", short: "Rebuild a price list from the cloud's own price interface.", min: 1, max: 1,
		long:    "Asks the cloud itself, with credentials from the environment, and writes a vms.csv." + needs.String(),
		example: "sky catalog fetch lambda --out ~/.sky/catalogs/v8/lambda/vms.csv",
		flags:   func(f flags) { f.text(&out, "out", "", "File to write; - is standard output.") },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("Missing option '--out'.")
			}
			return a.catalogFetch(ctx, args[0], out)
		},
	})
}

func (a *app) catalogFetch(ctx context.Context, cloud, out string) error {
	f, ok := fetchers[strings.ToLower(cloud)]
	if !ok {
		return usagef("No price interface is known for '%s'; known are: %s.", cloud, strings.Join(slices.Sorted(maps.Keys(fetchers)), ", "))
	}
	for _, key := range f.needs {
		if a.env(key) == "" {
			return fmt.Errorf("fetching %s's prices needs %s in the environment", cloud, key)
		}
	}
	a.t.Note("Asking %s for its prices…", cloud)
	rows, err := f.make(a.env).Rows(ctx)
	if err != nil {
		return fmt.Errorf("fetching %s's prices: %w", cloud, err)
	}
	var text bytes.Buffer
	if err := fetch.Write(&text, strings.ToLower(cloud), rows); err != nil {
		return err
	}
	if out == "-" {
		a.t.Print(text.String())
		return nil
	}
	if err := wholefile.Write(out, text.Bytes(), 0o644); err != nil {
		return err
	}
	a.t.Note("%d offers written to %s", len(rows), out)
	return nil
}

func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
