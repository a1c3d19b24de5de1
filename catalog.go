package sky

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skypilot-go/sky/api"
)

// AcceleratorOffer is one instance type with an accelerator.
type AcceleratorOffer struct {
	Cloud            string   `json:"cloud"`
	InstanceType     *string  `json:"instance_type"`
	AcceleratorName  string   `json:"accelerator_name"`
	AcceleratorCount float64  `json:"accelerator_count"`
	CPUCount         *float64 `json:"cpu_count"`
	DeviceMemory     *float64 `json:"device_memory"` // GB
	Memory           *float64 `json:"memory"`        // GB
	Price            *float64 `json:"price"`         // USD per hour
	SpotPrice        *float64 `json:"spot_price"`
	Region           *string  `json:"region"`
}

// UnmarshalJSON reads the wire form, a list of ten.
func (a *AcceleratorOffer) UnmarshalJSON(b []byte) error {
	fields := [...]any{
		&a.Cloud, &a.InstanceType, &a.AcceleratorName, &a.AcceleratorCount, &a.CPUCount,
		&a.DeviceMemory, &a.Memory, &a.Price, &a.SpotPrice, &a.Region,
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) != len(fields) {
		return fmt.Errorf("an offer has %d fields, not %d", len(list), len(fields))
	}
	for i, f := range fields {
		if string(list[i]) == "NaN" {
			continue
		}
		if err := json.Unmarshal(list[i], f); err != nil {
			return fmt.Errorf("field %d of an offer: %w", i, err)
		}
	}
	return nil
}

// Accelerators lists offers by accelerator name.
func (c *Client) Accelerators(ctx context.Context, b api.ListAcceleratorsBody) (*Request[map[string][]AcceleratorOffer], error) {
	b.Envelope = c.envelope()
	return post[map[string][]AcceleratorOffer](ctx, c, "/list_accelerators", b)
}

// AcceleratorCounts lists in which quantities accelerators are offered.
func (c *Client) AcceleratorCounts(ctx context.Context, b api.ListAcceleratorsBody) (*Request[map[string][]float64], error) {
	b.Envelope = c.envelope()
	return post[map[string][]float64](ctx, c, "/list_accelerator_counts", b)
}

// GPUAvailability is how many of one accelerator a Kubernetes context, a node
// pool or a Slurm partition has. On the wire it is [gpu, [counts], capacity, free].
type GPUAvailability struct {
	GPU       string
	Counts    []float64 // that one node can give
	Capacity  float64
	Available float64
}

// UnmarshalJSON reads the wire form, a list of four.
func (g *GPUAvailability) UnmarshalJSON(b []byte) error {
	return unmarshalList(b, &g.GPU, &g.Counts, &g.Capacity, &g.Available)
}

// ContextGPUs are the accelerators of one context.
type ContextGPUs struct {
	Context string
	GPUs    []GPUAvailability
}

// UnmarshalJSON reads the wire form, a list of two, or three with an error.
func (g *ContextGPUs) UnmarshalJSON(b []byte) error { return unmarshalList(b, &g.Context, &g.GPUs) }

func unmarshalList(b []byte, fields ...any) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) < len(fields) {
		return fmt.Errorf("a list has %d items, not %d", len(list), len(fields))
	}
	for i, f := range fields {
		if err := json.Unmarshal(list[i], f); err != nil {
			return err
		}
	}
	return nil
}

// KubernetesGPUs asks clusters what is free now; ssh asks the SSH node pools.
func (c *Client) KubernetesGPUs(ctx context.Context, context, name *string, quantity *float64, ssh bool) (*Request[[]ContextGPUs], error) {
	return post[[]ContextGPUs](ctx, c, "/realtime_kubernetes_gpu_availability", api.GPUAvailabilityBody{Envelope: c.envelope(), Context: context, NameFilter: name, QuantityFilter: quantity, IsSSH: &ssh})
}

// SlurmGPUs asks Slurm clusters what is free now.
func (c *Client) SlurmGPUs(ctx context.Context, name *string, quantity *float64) (*Request[[]ContextGPUs], error) {
	return post[[]ContextGPUs](ctx, c, "/slurm_gpu_availability", api.SlurmBody{Envelope: c.envelope(), NameFilter: name, QuantityFilter: quantity})
}

// SlurmNodes lists the nodes of a Slurm cluster; nil: of all.
func (c *Client) SlurmNodes(ctx context.Context, cluster *string) (*Request[[]api.SlurmNode], error) {
	return post[[]api.SlurmNode](ctx, c, "/slurm_node_info", api.SlurmBody{Envelope: c.envelope(), SlurmClusterName: cluster})
}

// KubernetesContexts lists the contexts of Kubernetes that the server can use.
func (c *Client) KubernetesContexts(ctx context.Context) (*Request[[]string], error) {
	return get[[]string](ctx, c, "/all_contexts", nil)
}

// KubernetesNode is a node of a Kubernetes cluster.
type KubernetesNode struct {
	Name            string  `json:"name"`
	AcceleratorType *string `json:"accelerator_type"`
	Total           struct {
		Count int `json:"accelerator_count"`
	} `json:"total"`
	Free struct {
		Available int `json:"accelerators_available"` // -1: not allowed to know
	} `json:"free"`
	CPUs     *float64 `json:"cpu_count"`
	MemoryGB *float64 `json:"memory_gb"`
	CPUFree  *float64 `json:"cpu_free"`
	MemFree  *float64 `json:"memory_free_gb"`
	Ready    *bool    `json:"is_ready"`
	Cordoned *bool    `json:"is_cordoned"`
}

// KubernetesNodes are the nodes of one context.
type KubernetesNodes struct {
	Nodes map[string]KubernetesNode `json:"node_info_dict"`
	Hint  string                    `json:"hint"`
}

// KubernetesNodeInfo lists the nodes of a context.
func (c *Client) KubernetesNodeInfo(ctx context.Context, context *string) (*Request[KubernetesNodes], error) {
	return post[KubernetesNodes](ctx, c, "/kubernetes_node_info", api.NodeInfoBody{Envelope: c.envelope(), Context: context})
}

// LabelResult is what labelling GPU nodes came to.
type LabelResult struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

// LabelGPUs labels the GPU nodes of a Kubernetes context.
func (c *Client) LabelGPUs(ctx context.Context, context *string, cleanup, wait bool) (*Request[LabelResult], error) {
	return post[LabelResult](ctx, c, "/kubernetes_label_gpus", api.LabelGPUsBody{Envelope: c.envelope(), Context: context, CleanupOnly: cleanup, WaitForCompletion: &wait})
}

// StatusKubernetes lists what sky runs in the current Kubernetes context, whoever
// launched it: clusters, unmanaged clusters, jobs, context.
func (c *Client) StatusKubernetes(ctx context.Context) (*Request[[]json.RawMessage], error) {
	return get[[]json.RawMessage](ctx, c, "/status_kubernetes", nil)
}

// LocalUp looks whether the Kubernetes cluster that kind made on the server's
// machine can be used.
func (c *Client) LocalUp(ctx context.Context, gpus bool, name string, portStart *int) (*Request[any], error) {
	return post[any](ctx, c, "/local_up", api.LocalUpBody{Envelope: c.envelope(), GPUs: &gpus, Name: &name, PortStart: portStart})
}

// LocalDown looks whether that cluster can go: whether sky has anything on it.
func (c *Client) LocalDown(ctx context.Context, name string) (*Request[any], error) {
	return post[any](ctx, c, "/local_down", api.LocalDownBody{Envelope: c.envelope(), Name: &name})
}

// CatalogStatus tells of every price list where it comes from and how old it is.
func (c *Client) CatalogStatus(ctx context.Context) (*Request[[]api.CatalogStatus], error) {
	return get[[]api.CatalogStatus](ctx, c, "/catalog/status", nil)
}

// RefreshCatalog fetches price lists again; no clouds means all.
func (c *Client) RefreshCatalog(ctx context.Context, clouds []string) (*Request[[]api.CatalogStatus], error) {
	return post[[]api.CatalogStatus](ctx, c, "/catalog/refresh", api.CatalogRefreshBody{Envelope: c.envelope(), Clouds: clouds})
}
