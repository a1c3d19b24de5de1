package vm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/registry"
)

// Ports that a machine is given when it is made, and where they are reached.
func TestMappedPorts(t *testing.T) {
	if all, err := EachPort("Toy", 3, []string{"80", "8000-8001"}); err != nil || !slices.Equal(all, []int{80, 8000, 8001}) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := EachPort("Toy", 2, []string{"80", "8000-8001"}); err == nil || !strings.Contains(err.Error(), "Toy has up to 2 ports besides that of ssh, not 3") {
		t.Error(err)
	}
	if _, err := EachPort("Toy", 2, []string{"x"}); err == nil {
		t.Error("x is no port")
	}
	var m Machine
	m.MapPort(8000, "10.0.0.1", 40000)
	if m.Ports[8000] != "10.0.0.1:40000" || m.Reach.Host != "" {
		t.Errorf("%+v", m)
	}
	m.MapPort(22, "10.0.0.1", 40022)
	if m.PublicIP != "10.0.0.1" || m.Reach.Host != "10.0.0.1" || m.Reach.Port != 40022 {
		t.Errorf("%+v", m)
	}
}

// Ports that are open already are not opened again, and none twice.
func TestLackingPorts(t *testing.T) {
	lacks, err := Lacking("toy", []string{"22", "8000-8010", "22", "9000"}, []PortRange{{9000, 9000}, {8000, 8001}})
	if err != nil || !slices.Equal(lacks, []PortRange{{22, 22}, {8000, 8010}}) || lacks[0].String() != "22" || lacks[1].String() != "8000-8010" {
		t.Errorf("%v, %v", lacks, err)
	}
	var invalid *cloud.InvalidError
	if _, err := Lacking("toy", []string{"x"}, nil); !errors.As(err, &invalid) || invalid.Place != (cloud.Place{Cloud: "toy"}) {
		t.Error(err)
	}
}

func TestNamesThatBeginWithALetter(t *testing.T) {
	spec := cloud.LaunchSpec{AuthorizedKey: "ssh-ed25519 AAAA"}
	for name, good := range map[string]bool{"web": true, "1web": false, "": false, "Web": false, "very-long-name": false} {
		spec.ID.Name = name
		if err := PlainLetter("Toy", 10, spec); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestImagesOfContainers(t *testing.T) {
	spec := cloud.LaunchSpec{}
	if got := Container(spec, "standard"); got != "standard" {
		t.Error(got)
	}
	spec.ImageID = "docker:team/app"
	if got := Container(spec, "standard"); got != "team/app" {
		t.Error(got)
	}
	spec.Login = &registry.Login{Server: "r.example"}
	if got := Container(spec, "standard"); got != "r.example/team/app" {
		t.Error(got)
	}
}
