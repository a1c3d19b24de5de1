package fetch

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/nebius/nebiusfake"
)

// nebiusAPI answers as Nebius would: a platform with GPUs, which are cheaper if they can be taken back, and one without.
type nebiusAPI struct{ t *testing.T }

func (a nebiusAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	message, err := grpc.Unframe(body)
	if err != nil || r.Header.Get("Authorization") != "Bearer secret" {
		a.t.Errorf("%v, %v", r.Header, err)
	}
	var answer any
	switch r.URL.Host + r.URL.Path {
	case "cpl.iam.test/nebius.iam.v1.ProjectService/List":
		var p nebiusParent
		if err := grpc.Unmarshal(message, &p); err != nil || p.Parent != "tenant-1" {
			a.t.Errorf("%+v, %v", p, err)
		}
		var one nebiusProject
		one.Metadata.ID, one.Status.Region = "project-"+p.Page, map[string]string{"": "eu-north1", "2": "us-central1"}[p.Page]
		answer = nebiusProjects{[]nebiusProject{one}, map[string]string{"": "2"}[p.Page]}
	case "compute.test/nebius.compute.v1.PlatformService/List":
		var gpus, cpus nebiusPlatform
		gpus.Metadata.Name, gpus.Spec.Presets, gpus.Spec.DeviceGB, gpus.Status.Preemptible = "gpu-h100-sxm", make([]nebiusPreset, 1), 80, true
		gpus.Spec.Presets[0].Name, gpus.Spec.Presets[0].Has.CPUs, gpus.Spec.Presets[0].Has.GiB, gpus.Spec.Presets[0].Has.GPUs = "8gpu-128vcpu-1600gb", 128, 1600, 8
		cpus.Metadata.Name, cpus.Spec.Presets = "cpu-d3", make([]nebiusPreset, 1)
		cpus.Spec.Presets[0].Name, cpus.Spec.Presets[0].Has.CPUs, cpus.Spec.Presets[0].Has.GiB = "4vcpu-16gb", 4, 16
		answer = nebiusPlatforms{[]nebiusPlatform{gpus, cpus}, ""}
	case "api.calculator.billing-data-plane.test/nebius.billing.v1.CalculatorService/EstimateBatch":
		var asked struct {
			Specs []struct {
				Of grpc.Any `pb:"1"`
			} `pb:"1"`
		}
		var m nebiusMachine
		if err := grpc.Unmarshal(message, &asked); err != nil || len(asked.Specs) != 1 || !strings.HasSuffix(asked.Specs[0].Of.Type, ".CreateInstanceRequest") || grpc.Unmarshal(asked.Specs[0].Of.Value, &m) != nil {
			a.t.Errorf("%+v, %v", asked, err)
		}
		e := nebiusEstimate{Currency: "USD", Totals: make([]nebiusTotal, 1)}
		e.Totals[0].Per.Unit, e.Totals[0].General.Total.Cost = "hour", "23.6"
		if m.Spec.Resources.Platform == "cpu-d3" {
			e.Totals[0].General.Total.Cost = "0.0992"
		} else if m.Spec.Preemptible.OnPreemption == 1 {
			e.Totals[0].General.Total.Cost = "10"
		}
		answer = e
	default:
		a.t.Error(r.URL)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/grpc")
	w.Write(grpc.Frame(grpc.Marshal(answer)))
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	return w.Result(), nil
}

func TestNebius(t *testing.T) {
	list := table(t, "nebius", Nebius{Tenant: "tenant-1", Token: "secret", Domain: "test", Transport: nebiusAPI{t}})
	check(t, list, catalog.Query{InstanceType: "cpu-d3_4vcpu-16gb"}, "cpu-d3_4vcpu-16gb 4/16 eu-north1 $0.0992, cpu-d3_4vcpu-16gb 4/16 us-central1 $0.0992")
	check(t, list, spot(gpu("H100", 8)), "gpu-h100-sxm_8gpu-128vcpu-1600gb 128/1600 eu-north1 $10, gpu-h100-sxm_8gpu-128vcpu-1600gb 128/1600 us-central1 $10")
	for platform, want := range map[string]string{"gpu-h200-sxm": "H200", "gpu-l40s-a": "L40S", "gpu-b200-sxm-a": "B200", "gpu-rtx6000": "RTXPRO6000"} {
		if got := nebiusGPU(platform); got != want {
			t.Errorf("%s: %s", platform, got)
		}
	}
}

// The prices of a fake that somebody else wrote.
func TestNebiusFake(t *testing.T) {
	list := table(t, "nebius", Nebius{Tenant: nebiusfake.Tenant, Token: nebiusfake.Token, Transport: nebiusfake.New()})
	check(t, list, gpu("L40S", 1), "gpu-l40s-a_1gpu-8vcpu-32gb 8/32 eu-north1 $1.55, gpu-l40s-a_1gpu-8vcpu-32gb 8/32 eu-west1 $1.55, gpu-l40s-a_1gpu-8vcpu-32gb 8/32 us-central1 $1.55")
}
