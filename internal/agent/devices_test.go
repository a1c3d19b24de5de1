//go:build unix

package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api/agentapi"
)

func TestWhichGPUsAJobSees(t *testing.T) {
	for _, tt := range []struct {
		share, asked string
		restricted   bool
		want         string
	}{
		{"2,5,7", "", false, "2,5,7"},           // a shell, or setup
		{"2,5,7", "0,2", true, "2,7"},           // a job with two of them
		{"2,5,7", "", true, ""},                 // a job that asks for none
		{"2,5,7", "1, 3", true, "5"},            // the share has no fourth
		{"2,5,7", "-1", true, ""},               // CUDA's word for none
		{"2,5,7", "GPU-ab,0", true, "GPU-ab,2"}, // by name
		{"", "0", true, ""},                     // a share without GPUs
		{"", "", false, ""},
	} {
		if got := visibleDevices(tt.share, tt.asked, tt.restricted); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func TestAShareOfTheMachineIsInTheEnvironment(t *testing.T) {
	visible := func(vars map[string]string) (out []string) {
		for _, kv := range environment("/h", vars, "k") {
			if strings.HasPrefix(kv, "CUDA_") {
				out = append(out, kv)
			}
		}
		return out
	}
	if got := visible(nil); got != nil {
		t.Errorf("on a machine of its own: %v", got)
	}
	t.Setenv(agentapi.DevicesEnv, "4,6")
	if got := visible(map[string]string{"CUDA_VISIBLE_DEVICES": "1"}); !slices.Equal(got, []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=6"}) {
		t.Errorf("%v", got)
	}
	t.Setenv(agentapi.DevicesEnv, "")
	if got := visible(nil); !slices.Equal(got, []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="}) {
		t.Errorf("a share without GPUs: %v", got)
	}
}
