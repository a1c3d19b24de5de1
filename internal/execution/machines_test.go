package execution

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

func TestWhichImageAPlaceGets(t *testing.T) {
	at := func(c, region string) cloud.Place { return cloud.Place{Cloud: c, Region: region, Zone: region + "a"} }
	for _, tt := range []struct {
		name               string
		requests           []task.Resources
		at                 cloud.Place
		machine, container string
	}{
		{"none", []task.Resources{{}}, at("aws", "east"), "", ""},
		{"one for all regions", []task.Resources{{Cloud: "aws", ImageID: map[string]string{"": "ami-1"}}}, at("aws", "east"), "ami-1", ""},
		{"one for each region", []task.Resources{{Cloud: "aws", ImageID: map[string]string{"east": "ami-1", "west": "ami-2"}}}, at("aws", "west"), "ami-2", ""},
		{"a container", []task.Resources{{ImageID: map[string]string{"docker": "img"}}}, at("aws", "east"), "", "img"},
		{"both", []task.Resources{{Cloud: "aws", ImageID: map[string]string{"docker": "img", "east": "ami-1"}}}, at("aws", "east"), "ami-1", "img"},
		{"a container for each region", []task.Resources{{ImageID: map[string]string{"east": "docker:one", "west": "docker:two"}}}, at("aws", "west"), "", "two"},
		{"any of several clouds", []task.Resources{{Cloud: "aws", ImageID: map[string]string{"": "ami-1"}}, {Cloud: "gcp", ImageID: map[string]string{"": "projects/p"}}}, at("gcp", "east"), "projects/p", ""},
		{"any of several regions", []task.Resources{{Cloud: "aws", Region: "east", ImageID: map[string]string{"": "ami-1"}}, {Cloud: "aws", Region: "west", ImageID: map[string]string{"": "ami-2"}}}, at("aws", "west"), "ami-2", ""},
		{"the request without an image", []task.Resources{{Cloud: "aws", Region: "east"}, {Cloud: "aws", Region: "west", ImageID: map[string]string{"": "ami-2"}}}, at("aws", "east"), "", ""},
	} {
		spec := machineSpec(tt.requests)
		text, err := json.Marshal(spec)
		var stored cloud.MachineSpec // as it is after it was stored
		if err == nil {
			err = json.Unmarshal(text, &stored)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []cloud.MachineSpec{spec, stored} {
			if m, k := spec.ImagesAt(tt.at); m != tt.machine || k != tt.container {
				t.Errorf("%s: %q, %q, want %q, %q", tt.name, m, k, tt.machine, tt.container)
			}
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          nil,
		"--gpus all":                {"--gpus", "all"},
		"  -v  /a:/b ":              {"-v", "/a:/b"},
		"-v\t/a:/b\n--rm":           {"-v", "/a:/b", "--rm"},
		`-e 'A=b c' -e "D=\"e\" f"`: {"-e", "A=b c", "-e", `D="e" f`},
		`a\ b ''`:                   {"a b", ""},
		"-e X=$HOME;rm":             {"-e", "X=$HOME;rm"},
	} {
		if got, err := splitWords(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`"open`, `end\`} {
		if got, err := splitWords(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}
