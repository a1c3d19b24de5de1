package cloudtest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// What tests of providers have besides the contract is tables: which answers mean what,
// and what is offered. They are checked here.

// Key is a public key for launches.
const Key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

// Cluster is a launch of one node of an offer.
func Cluster(o cloud.Offer, name string) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: name, Hash: "h"}, Offer: o, Nodes: 1, Token: name, AuthorizedKey: Key}
}

// PrepareAndLaunch does what the program does.
func PrepareAndLaunch(t testing.TB, p cloud.Provider, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	t.Helper()
	if err := p.Prepare(t.Context(), spec); err != nil {
		return nil, err
	}
	return p.Launch(t.Context(), spec)
}

// States wants what a cloud says of a machine to be what a table says. lie makes it say a state of
// one, and restore takes that back; "": the machine must not count, nor as anything else.
func States(t *testing.T, p cloud.Provider, spec cloud.LaunchSpec, lie func(id, state string), restore func(), table map[string]cloud.NodeState) {
	t.Helper()
	nodes, err := PrepareAndLaunch(t, p, spec)
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range table {
		lie(nodes[0].ID, said)
		found, err := p.Nodes(t.Context(), spec.ID)
		restore()
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is believed: %+v", said, found)
		case want == cloud.NodeGone && err == nil && len(found) == 0:
		case want != "" && (err != nil || len(found) != 1 || found[0].State != want):
			t.Errorf("%q: %+v, %v; want %s", said, found, err, want)
		}
	}
}

// ReadYAML stores YAML in what out points to, by its json tags: what cloud-init, or another
// program that is given a text, makes of it.
func ReadYAML(t testing.TB, text string, out any) {
	t.Helper()
	n, err := (&yaml11.Source{Text: text}).ReadOne()
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	b, err := json.Marshal(n.Any())
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// HomeFile writes a file into a home folder as people keep their credentials: nobody else
// may read it. name has slashes.
func HomeFile(t testing.TB, home, name, text string) {
	t.Helper()
	path := filepath.Join(home, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Means is an answer that means an E, and for what was asked of a kind.
func Means[E error](kind vm.Kind, status int, body string) Refusal {
	return Refusal{status, body, Is[E], kind}
}

// Nothing is an answer that proves nothing: what was asked may have happened.
func Nothing(status int, body string) Refusal { return Refusal{status: status, body: body} }

// Is tells an error that is, or wraps, an E.
func Is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Refusal is an answer of a cloud and what it means: see [Means] and [Nothing].
type Refusal struct {
	status int
	body   string
	means  func(error) bool // tells the error in the words of package cloud; nil: the answer proves nothing
	kind   vm.Kind
}

// Meanings translate refusals: a driver, or its [vm.Refusals].
type Meanings interface {
	Refusal(ctx context.Context, at cloud.Place, err error) error
	Kind(err error) vm.Kind
}

// Refusals wants each answer to mean what the table says, as read by a provider's reader
// of answers and translated by its meanings at a place.
func Refusals(t *testing.T, at cloud.Place, read func(status int, header http.Header, body []byte) error, r Meanings, table []Refusal) {
	t.Helper()
	for _, row := range table {
		err := read(row.status, nil, []byte(row.body))
		if row.means == nil {
			if err != nil {
				t.Errorf("%d %s proves something: %v", row.status, row.body, err)
			}
			continue
		}
		if got := r.Refusal(t.Context(), at, err); err == nil || !row.means(got) || r.Kind(err) != row.kind {
			t.Errorf("%d %s: %T (%v), %v", row.status, row.body, got, got, r.Kind(err))
		}
	}
}

// PriceList wants the verdict about each offer at its price, and at half of that the whole
// price as well, because it rose.
func PriceList(t *testing.T, p cloud.Provider, want cloud.AvailabilityVerdict, offers []cloud.Offer) {
	t.Helper()
	asks, ok := cloud.As[cloud.AvailabilityProber](p)
	if !ok || len(offers) == 0 {
		t.Fatalf("%s has %d offers, or does not say what is available", p.Name(), len(offers))
	}
	for _, o := range offers {
		if a, err := asks.Available(t.Context(), o, 1); err != nil || a.Verdict != want || o.HourlyPrice <= 0 {
			t.Errorf("%+v: %v, %v", o, a, err)
		}
		price := o.HourlyPrice
		o.HourlyPrice /= 2
		if a, err := asks.Available(t.Context(), o, 1); err != nil || a.Verdict != want || a.Price != price || !strings.Contains(a.Reason, "rose") {
			t.Errorf("%+v: %v, %v", o, a, err)
		}
	}
}

// In is an offer in another zone.
func In(o cloud.Offer, zone string) *cloud.Offer {
	o.Zone = zone
	return &o
}
