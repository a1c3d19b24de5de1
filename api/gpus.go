package api

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// AcceleratorOffer is one instance type with an accelerator, in one region. On the
// wire it is a list of the ten fields in their order, null for what is not known.
type AcceleratorOffer struct {
	Cloud            string   `json:"cloud"`         // display name
	InstanceType     *string  `json:"instance_type"` // null for accelerators that have none of their own
	AcceleratorName  string   `json:"accelerator_name"`
	AcceleratorCount float64  `json:"accelerator_count"`
	CPUCount         *float64 `json:"cpu_count"`
	DeviceMemory     *float64 `json:"device_memory"` // GB
	Memory           *float64 `json:"memory"`        // GB
	Price            *float64 `json:"price"`         // $ per hour
	SpotPrice        *float64 `json:"spot_price"`
	Region           *string  `json:"region"`
}

// MarshalJSON writes the wire form.
func (a AcceleratorOffer) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{
		a.Cloud, a.InstanceType, a.AcceleratorName, Float(a.AcceleratorCount), (*Float)(a.CPUCount),
		(*Float)(a.DeviceMemory), (*Float)(a.Memory), (*Float)(a.Price), (*Float)(a.SpotPrice), a.Region,
	})
}

// UnmarshalJSON reads the wire form; other servers also write NaN for unknown numbers.
func (a *AcceleratorOffer) UnmarshalJSON(b []byte) error {
	return unmarshalList(b, &a.Cloud, &a.InstanceType, &a.AcceleratorName, &a.AcceleratorCount, &a.CPUCount,
		&a.DeviceMemory, &a.Memory, &a.Price, &a.SpotPrice, &a.Region)
}

// Float is a number that is written with ".0" if it is whole, as clients have always seen these numbers.
type Float float64

func (f Float) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(float64(f))
	if err == nil && !bytes.ContainsAny(b, ".eE") {
		b = append(b, '.', '0')
	}
	return b, err
}

// GPUAvailability is how many of one accelerator a Kubernetes context, a node
// pool or a Slurm partition has. On the wire it is [gpu, [counts], capacity, free].
type GPUAvailability struct {
	GPU       string
	Counts    []float64 // that one node can give
	Capacity  float64
	Available float64
}

// MarshalJSON writes the wire form.
func (g GPUAvailability) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{g.GPU, g.Counts, g.Capacity, g.Available})
}

// UnmarshalJSON reads the wire form.
func (g *GPUAvailability) UnmarshalJSON(b []byte) error {
	return unmarshalList(b, &g.GPU, &g.Counts, &g.Capacity, &g.Available)
}

// ContextGPUs are the accelerators of one context. On the wire they are [context, gpus];
// other servers add an error as a third item.
type ContextGPUs struct {
	Context string
	GPUs    []GPUAvailability
}

// MarshalJSON writes the wire form.
func (g ContextGPUs) MarshalJSON() ([]byte, error) { return json.Marshal([]any{g.Context, g.GPUs}) }

// UnmarshalJSON reads the wire form.
func (g *ContextGPUs) UnmarshalJSON(b []byte) error { return unmarshalList(b, &g.Context, &g.GPUs) }

// unmarshalList reads the first items of a list into fields.
func unmarshalList(b []byte, fields ...any) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) < len(fields) {
		return fmt.Errorf("a list has %d items, want %d", len(list), len(fields))
	}
	for i, f := range fields {
		if string(list[i]) == "NaN" {
			continue
		}
		if err := json.Unmarshal(list[i], f); err != nil {
			return fmt.Errorf("item %d of a list: %w", i, err)
		}
	}
	return nil
}

// KubernetesNode is a node of a Kubernetes cluster.
type KubernetesNode struct {
	Name            string  `json:"name"`
	AcceleratorType *string `json:"accelerator_type"`
	Address         string  `json:"ip_address"`
	Total           struct {
		Count int `json:"accelerator_count"`
	} `json:"total"`
	Free struct {
		Available int `json:"accelerators_available"` // -1: not allowed to know
	} `json:"free"`
	CPUs     *float64          `json:"cpu_count"`
	MemoryGB *float64          `json:"memory_gb"`
	CPUFree  *float64          `json:"cpu_free"`
	MemFree  *float64          `json:"memory_free_gb"`
	Ready    *bool             `json:"is_ready"`
	Cordoned *bool             `json:"is_cordoned"`
	Taints   []KubernetesTaint `json:"taints"`
}

// KubernetesTaint keeps pods off a node that do not tolerate it.
type KubernetesTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// KubernetesNodes are the nodes of one context.
type KubernetesNodes struct {
	Nodes map[string]KubernetesNode `json:"node_info_dict"`
	Hint  string                    `json:"hint"`
}

// LabelResult is what labelling GPU nodes came to.
type LabelResult struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}
