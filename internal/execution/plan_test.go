package execution

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
)

// asked is a cloud that notes that somebody asked for it.
type asked struct {
	cloud.Provider
	name string
	err  error
	by   *sync.Map
}

func (a asked) Name() string             { return a.name }
func (a asked) DisplayName() string      { return strings.ToUpper(a.name) }
func (a asked) Features() cloud.Features { return cloud.Features{} }

func (a asked) Check(context.Context) (cloud.Identity, error) {
	a.by.Store(a.name, true)
	return nil, a.err
}

func (a asked) Offers(context.Context) ([]cloud.Offer, error) {
	return []cloud.Offer{{Place: cloud.Place{Cloud: a.name, Region: "r"}, InstanceType: "small", CPUs: 8, MemoryGiB: 32, HourlyPrice: 1}}, nil
}

// spoken is what a client reads.
type spoken struct{ *bytes.Buffer }

func (spoken) Spin(string) {}
func (spoken) StopSpin()   {}

// A plan waits only for clouds that it may use: one that does not answer must not
// hold up a task that is for another.
func TestAPlanAsksTheCloudsThatTasksName(t *testing.T) {
	for _, tt := range []struct {
		name, task string
		asked      []string
		want       string // of the error; "": it is planned
	}{
		{"any", "run: echo", []string{"aws", "gcp", "lambda"}, ""},
		{"one", "resources: {infra: aws}", []string{"aws"}, ""},
		{"one or another", "resources: {any_of: [{infra: aws}, {infra: lambda}]}", []string{"aws", "lambda"}, ""},
		{"one that does not answer", "resources: {infra: gcp}", []string{"gcp"}, "gcp  it is not enabled: unreachable: no route"},
		{"one or any", "resources: {any_of: [{infra: aws}, {cpus: 4}]}", []string{"aws", "gcp", "lambda"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var by sync.Map
			providers := cloud.NewRegistry(
				asked{name: "aws", by: &by}, asked{name: "lambda", by: &by},
				asked{name: "gcp", by: &by, err: &cloud.UnreachableError{Err: errors.New("no route")}},
			)
			dag, err := parse(tt.task)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			x := New(Deps{Providers: providers, Log: slog.New(slog.DiscardHandler)})
			_, plan, err := x.plan(t.Context(), cluster.Call{Out: spoken{&out}}, planning{dag: dag})
			var names []string
			by.Range(func(name, _ any) bool { names = append(names, name.(string)); return true })
			if slices.Sort(names); !slices.Equal(names, tt.asked) {
				t.Errorf("asked %v, want %v", names, tt.asked)
			}
			switch {
			case tt.want == "" && (err != nil || plan.Tasks[0].Chosen.Offer.Cloud != "aws"):
				t.Errorf("%v, %v", plan, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
			if said := strings.Contains(out.String(), "GCP is left out of the plan"); said != slices.Contains(tt.asked, "gcp") {
				t.Errorf("said:\n%s", &out)
			}
		})
	}
}

// What the configuration says of where machines may be counts in plans.
func TestPlansKeepToTheConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name, task string
		config     map[string]any
		want       string // where it is planned, or a part of the error
	}{
		{"nothing is said", "run: echo", nil, "aws"},
		{"for buckets only", "run: echo", map[string]any{"aws": map[string]any{"capabilities": []any{"storage"}}}, "gcp"},
		{"for buckets only, and asked for", "resources: {infra: aws}", map[string]any{"aws": map[string]any{"capabilities": []any{"storage"}}}, "compute is not in aws.capabilities"},
		{"reached elsewhere", "run: echo", map[string]any{"aws": map[string]any{"ssh_proxy_command": map[string]any{"elsewhere": "nc %h %p"}}}, "gcp"},
		{"reached elsewhere, and asked for", "resources: {infra: aws/r}", map[string]any{"aws": map[string]any{"ssh_proxy_command": map[string]any{"elsewhere": "nc %h %p"}}}, "aws.ssh_proxy_command names no way"},
		{"reached directly", "run: echo", map[string]any{"aws": map[string]any{"ssh_proxy_command": map[string]any{"R": nil}}}, "aws"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var by sync.Map
			dag, err := parse(tt.task)
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.FromMap(config.Server, config.Origin{}, tt.config)
			if err != nil {
				t.Fatal(err)
			}
			x := New(Deps{Providers: cloud.NewRegistry(asked{name: "aws", by: &by}, asked{name: "gcp", by: &by}), Log: slog.New(slog.DiscardHandler)})
			_, plan, err := x.plan(t.Context(), cluster.Call{Out: spoken{&bytes.Buffer{}}, Config: c}, planning{dag: dag})
			if got := fmt.Sprint(err); err != nil && !strings.Contains(got, tt.want) || err == nil && plan.Tasks[0].Chosen.Offer.Cloud != tt.want {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}
