package daemon

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

// A hint names a command that works: with the names that users gave.
func TestWhoHasMachinesIsNamedAsUsersDo(t *testing.T) {
	names := map[string]string{"h1": "mine", "h2": "My_Other"}
	mine := cloud.ClusterID{Installation: "i", Name: "mine-9fc474b0", Hash: "h1"}
	other := cloud.ClusterID{Installation: "i", Name: "my-other-x0123456789-9fc474b0", Hash: "h2"}
	stray := cloud.ClusterID{Installation: "i", Name: "lost-9fc474b0", Hash: "h3"}
	foreign := cloud.ClusterID{Installation: "j", Name: "theirs-1", Hash: "h4"}
	for _, c := range []struct {
		ids        []cloud.ClusterID
		want, lack []string
	}{
		{[]cloud.ClusterID{mine, other, mine}, []string{"My_Other, mine.", "sky down My_Other mine"}, []string{"9fc474b0", "sky sweep", "another installation"}},
		{[]cloud.ClusterID{stray}, []string{"lost-9fc474b0.", "sky sweep"}, []string{"sky down"}},
		{[]cloud.ClusterID{mine, foreign}, []string{"mine, theirs-1.", "sky down mine", "another installation"}, []string{"sky down mine theirs", "sky sweep"}},
	} {
		e := held(c.ids, names, "i")
		got := e.Message + e.Hint
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: %q lacks %q", c.ids, got, want)
			}
		}
		for _, lack := range c.lack {
			if strings.Contains(got, lack) {
				t.Errorf("%v: %q has %q", c.ids, got, lack)
			}
		}
	}
}
