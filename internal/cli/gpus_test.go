package cli

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestAcceleratorsThatAUserHasAreListedForPrograms(t *testing.T) {
	live := liveGPUs{kubernetes: []api.ContextGPUs{{Context: "prod", GPUs: []api.GPUAvailability{{GPU: "H100", Counts: []float64{1, 2}, Capacity: 16, Available: 3}}}}}
	price := 2.5
	got, err := jsonText(live.with(map[string][]api.AcceleratorOffer{"H100": {{Cloud: "AWS", AcceleratorName: "H100", AcceleratorCount: 8, Price: &price}}}))
	if err != nil {
		t.Fatal(err)
	}
	var back map[string][]struct {
		Cloud, Region       string
		AcceleratorCount    float64 `json:"accelerator_count"`
		Capacity, Available *float64
		Price               *float64
	}
	if err := json.Unmarshal([]byte(got), &back); err != nil {
		t.Fatal(err)
	}
	list := back["H100"]
	if len(list) != 3 || list[0].Cloud != "AWS" || list[0].Capacity != nil || *list[0].Price != price {
		t.Fatal(got)
	}
	for i, o := range list[1:] {
		if o.Cloud != "Kubernetes" || o.Region != "prod" || o.AcceleratorCount != float64(i+1) || *o.Capacity != 16 || *o.Available != 3 || o.Price != nil {
			t.Errorf("%+v in %s", o, got)
		}
	}
	if !live.any() || (liveGPUs{}).any() || (liveGPUs{ssh: []api.ContextGPUs{{Context: "pool"}}}).any() {
		t.Error("whether there are any")
	}
}

func TestAcceleratorsToListAreReadAsInTasks(t *testing.T) {
	for _, text := range []string{"A100:8", " A100:8 ", "A100 : 8", "A100: 8"} {
		q, err := gpusOptions{}.query([]string{text})
		if err != nil || q.name != "A100" || q.quantity == nil || *q.quantity != 8 {
			t.Errorf("%q: %+v, %v", text, q, err)
		}
	}
	for text, want := range map[string]string{"40GB+": "40GB+", "40GB+:2": "40GB+ 2", "nvidia:40GB": "nvidia:40GB", "nvidia:40GB+:2": "nvidia:40GB+ 2"} {
		q, err := gpusOptions{}.query([]string{text})
		got := q.name
		if q.quantity != nil {
			got += fmt.Sprintf(" %v", *q.quantity)
		}
		if err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{":8", " : 8", "A100:", "A100:x", "A100:0", "A100:8:1"} {
		if q, err := (gpusOptions{}).query([]string{text}); err == nil {
			t.Errorf("%q is read as %+v", text, q)
		}
	}
}
