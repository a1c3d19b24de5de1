package fetch

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/ibm/ibmfake"
	"github.com/skypilot-go/sky/internal/cloud/ibmapi"
)

// The prices of a fake: of profiles that share a plan by their parts, of others as a whole,
// in each zone, without what an operating system costs.
func TestIBM(t *testing.T) {
	home := t.TempDir()
	cloudtest.HomeFile(t, home, ibmapi.Path, "iam_api_key: "+ibmfake.APIKey+"\nresource_group_id: "+ibmfake.ResourceGroup+"\n")
	list := table(t, "ibm", IBM{Home: home, Transport: ibmfake.New()})
	check(t, list, catalog.Query{InstanceType: "bx2-4x16", EachZone: true}, "bx2-4x16 4/16 us-south/us-south-1 $0.19, bx2-4x16 4/16 us-south/us-south-2 $0.19, bx2-4x16 4/16 eu-de/eu-de-1 $0.209, bx2-4x16 4/16 eu-de/eu-de-2 $0.209")
	check(t, list, gpu("V100", 1), "gx2-8x64x1v100 8/64 us-south $2.53, gx2-8x64x1v100 8/64 eu-de $2.783")
	check(t, list, gpu("L4", 1), "gx3-16x80x1l4 16/80 us-south $1.4, gx3-16x80x1l4 16/80 eu-de $1.54")
	check(t, list, spot(gpu("L4", 1)), "") // sky does not rent such machines
	check(t, list, catalog.Query{InstanceType: "bx9-2x8"}, "")

	var text bytes.Buffer
	rows, err := IBM{Home: home, Transport: ibmfake.New()}.Rows(t.Context())
	if err == nil {
		err = Write(&text, "ibm", rows)
	}
	if head, _, _ := strings.Cut(text.String(), "\n"); err != nil || head != "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone" {
		t.Errorf("%s, %v", head, err)
	}
	if _, err := (IBM{Home: t.TempDir(), Transport: ibmfake.New()}).Rows(t.Context()); err == nil || !strings.Contains(err.Error(), "https://cloud.ibm.com/iam/apikeys") {
		t.Error(err)
	}
	if _, err := (IBM{Home: home, Transport: noCatalog{ibmfake.New()}}).Rows(t.Context()); err == nil {
		t.Error("a catalog that does not answer has no prices, and no error")
	}
}

// noCatalog is IBM without its catalog.
type noCatalog struct{ http.RoundTripper }

func (n noCatalog) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Host == "globalcatalog.cloud.ibm.com" {
		return nil, http.ErrServerClosed
	}
	return n.RoundTripper.RoundTrip(r)
}

// A machine that is charged by its parts has a price if all of them have.
func TestIBMPrices(t *testing.T) {
	for _, tt := range []struct {
		profile, meters string
		charged         string
		dollars         float64
	}{
		{"cx2d-4x8", `{"unit": "VCPU", "quantity": "4"}, {"unit": "MEMORY", "quantity": "8"}, {"unit": "IS_STORAGE", "quantity": "150"}, {"unit": "PROFILE", "quantity": "cx2d-4x8"}`, "VCPU_HOURS MEMORY_HOURS IS_STORAGE_GIGABYTE_HOURS", 0.75},
		{"gx2-8x64x1v100", `{"unit": "VCPU", "quantity": 8}, {"unit": "GPU", "quantity": 1}, {"unit": "GPU_CARD", "quantity": "V100"}, {"unit": "IS_STORAGE", "quantity": 0}`, "VCPU_HOURS V100_HOURS", 0},
		{"gx2-8x64", `{"unit": "VCPU", "quantity": "8"}, {"unit": "GPU", "quantity": "1"}`, "VCPU_HOURS _HOURS", 0}, // which GPU is not said
		{"bx3d-2x10", `{"unit": "VCPU", "quantity": "2"}, {"unit": "INSTANCE_MULTI_TENANT", "quantity": "1"}, {"unit": "INSTANCE_DEDICATED_HOST", "quantity": "0"}`, "part-is.instance-hours-bx3d-2x10", 2},
	} {
		var plan ibmPlan
		if err := json.Unmarshal([]byte(`{"meters": [`+tt.meters+`]}`), &plan); err != nil {
			t.Fatal(err)
		}
		var c ibmCharges
		if err := json.Unmarshal([]byte(`{"metrics": [
			{"metric_id": "part-is.cpu-hours", "charge_unit_name": "VCPU_HOURS", "charge_unit_quantity": 1, "amounts": [{"country": "DEU", "currency": "EUR", "prices": [{"price": 9}]}, {"country": "USA", "currency": "USD", "prices": [{"quantity_tier": 1, "price": 0.5}]}]},
			{"metric_id": "part-is.ram-hours", "charge_unit_name": "MEMORY_HOURS", "amounts": [{"country": "USA", "currency": "USD", "prices": [{"price": 0.125}]}]},
			{"metric_id": "part-is.storage", "charge_unit_name": "IS_STORAGE_GIGABYTE_HOURS", "amounts": [{"country": "USA", "currency": "USD", "prices": [{"price": 0.125}]}]},
			{"metric_id": "part-is.v100-hours", "charge_unit_name": "V100_HOURS", "amounts": [{"country": "DEU", "currency": "EUR", "prices": [{"price": 9}]}]},
			{"metric_id": "part-is.instance-hours-bx3d-2x10", "charge_unit_name": "INSTANCE_HOURS_MULTI_TENANT", "charge_unit_quantity": 1, "amounts": [{"country": "USA", "currency": "USD", "prices": [{"price": 2}]}]},
			{"metric_id": "part-is.instance-hours-dh-bx3d-2x10", "charge_unit_name": "INSTANCE_HOURS_DEDICATED_HOST", "amounts": [{"country": "USA", "currency": "USD", "prices": [{"price": 0}]}]}]}`), &c); err != nil {
			t.Fatal(err)
		}
		if names := plan.charged(tt.profile); strings.Join(names, " ") != tt.charged || c.dollars(names) != tt.dollars {
			t.Errorf("%s: %v, %v", tt.profile, names, c.dollars(names))
		}
	}
	for model, want := range map[string]string{"NVIDIA Tesla V100": "V100", "L40S": "L40S", "Intel Gaudi 3": "Gaudi3", "NVIDIA H100 SXM": "H100"} {
		var p ibmProfile
		p.GPUs.Value, p.Model.Values = 1.0, []any{model}
		if got := p.gpu(); got != want {
			t.Errorf("%s: %s", model, got)
		}
	}
}
