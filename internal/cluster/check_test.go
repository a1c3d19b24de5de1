package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
)

// placed is a cloud whose regions have credentials of their own.
type placed struct {
	checkable
	at map[string]error
}

func (p placed) CheckPlaces(_ context.Context, only string, _ func(string) map[string]any) ([]cloud.CheckedPlace, error) {
	var out []cloud.CheckedPlace
	for _, name := range slices.Sorted(maps.Keys(p.at)) {
		if only == "" || only == name {
			out = append(out, cloud.CheckedPlace{Region: name, Who: "ann@" + name, Err: p.at[name]})
		}
	}
	return out, nil
}

// What is checked and shown of machines, object stores, contexts and pools.
func TestCheckOfStoresAndPlaces(t *testing.T) {
	none := &cloud.AuthError{Cloud: "gcp", Fix: "gcloud auth", NotSetUp: true, Err: errors.New("no file")}
	providers := cloud.NewRegistry(
		checkable{name: "AWS", who: cloud.Identity{"ann"}},
		checkable{name: "GCP", err: none},
		checkable{name: "OCI", err: none},
		checkable{name: "Lambda"},
		placed{checkable{name: "Kubernetes"}, map[string]error{"east": nil, "west": errors.New("no route")}},
	)
	for _, tt := range []struct {
		name   string
		config map[string]any
		clouds []string
		stores []string // that take their credentials
		want   string   // of the report
		says   []string
		not    string
	}{
		{
			name: "all", stores: []string{"aws", "oci", "cloudflare"},
			want: "AWS: compute storage, Cloudflare: storage, Kubernetes: compute, Lambda: compute, OCI: storage",
			says: []string{
				"  AWS: enabled [compute, storage]\n  OCI: enabled [storage]\n    Reason [compute]:", "    ├── east: enabled\n    └── west: disabled. Reason: no route\n",
				"  Cloudflare: enabled [storage]\n", "  Not set up: GCP, CoreWeave, VastData, HuggingFace\n", "🎉 Enabled infra 🎉\n  AWS [compute, storage]\n  OCI [storage]\n",
			},
			not: "GCP: ",
		},
		{name: "stores only", clouds: []string{"storage"}, stores: []string{"aws"}, want: "AWS: storage", says: []string{"AWS: enabled [storage]", "Not set up: GCP,"}, not: "Lambda"},
		{name: "a store", clouds: []string{"r2"}, want: "", says: []string{"Cloudflare: disabled\n    Reason [storage]: cloudflare is not set up: no keys\n    To enable it: write keys\n"}},
		{name: "a store by its cloud", clouds: []string{"CloudFlare"}, stores: []string{"cloudflare"}, want: "Cloudflare: storage"},
		{name: "a context", clouds: []string{"k8s/east"}, want: "Kubernetes: compute", says: []string{"    └── east: enabled\n"}, not: "west"},
		{name: "a context that does not answer", clouds: []string{"kubernetes/west"}, want: "", says: []string{"Kubernetes: disabled\n    └── west: disabled. Reason: no route\n"}, not: "east"},
		{name: "an alias", clouds: []string{"k8s"}, want: "Kubernetes: compute"},
		{
			name: "what the configuration rules out", config: map[string]any{"aws": map[string]any{"capabilities": []any{"storage"}}}, clouds: []string{"aws"}, stores: []string{"aws"}, want: "AWS: storage",
			says: []string{"AWS: enabled [storage]\n    Reason [compute]: compute is not in aws.capabilities"},
		},
		{
			name: "what is refused", clouds: []string{"aws"}, want: "AWS: compute", says: []string{"AWS: enabled [compute]\n    Reason [storage]: "},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := config.FromMap(config.Server, config.Origin{}, tt.config)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			report, err := cluster.Checker{Providers: providers, Config: cfg, Store: func(_ context.Context, _ *config.Config, of string) error {
				if of == "gcp" {
					t.Error("whoever has no account was asked for its buckets")
				}
				if slices.Contains(tt.stores, of) {
					return nil
				}
				return &cloud.AuthError{Cloud: of, Fix: "write keys", NotSetUp: true, Err: errors.New("no keys")}
			}}.Check(t.Context(), tt.clouds, &out)
			var got []string
			for _, name := range slices.Sorted(maps.Keys(report)) {
				got = append(got, name+": "+strings.Join(report[name], " "))
			}
			if err != nil || strings.Join(got, ", ") != tt.want {
				t.Errorf("%v, %v; want %s", got, err, tt.want)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in\n%s", want, out.String())
				}
			}
			if tt.not != "" && strings.Contains(out.String(), tt.not) {
				t.Errorf("%q is in\n%s", tt.not, out.String())
			}
		})
	}
	cfg, err := config.FromMap(config.Server, config.Origin{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := cluster.Checker{Providers: providers, Config: cfg, Store: func(context.Context, *config.Config, string) error { return nil }}
	for name, want := range map[string]string{"aws/us-east-1": "sky check aws", "cloudy": "cloudflare", "slurm": "cannot rent from Slurm"} {
		if _, err := k.Check(t.Context(), []string{name}, &bytes.Buffer{}); !isType(err, api.ErrValue) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := k.Check(t.Context(), []string{"lambda", "storage"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "Lambda has no object stores") {
		t.Errorf("the buckets of a cloud without: %v", err)
	}
}
