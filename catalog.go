package sky

import (
	"context"
	"encoding/json"

	"github.com/skypilot-go/sky/api"
)

// Accelerators lists offers by accelerator name.
func (c *Client) Accelerators(ctx context.Context, b api.ListAcceleratorsBody) (*Request[map[string][]api.AcceleratorOffer], error) {
	b.Envelope = c.envelope()
	return post[map[string][]api.AcceleratorOffer](ctx, c, "/list_accelerators", b)
}

// AcceleratorCounts lists in which quantities accelerators are offered.
func (c *Client) AcceleratorCounts(ctx context.Context, b api.ListAcceleratorsBody) (*Request[map[string][]float64], error) {
	b.Envelope = c.envelope()
	return post[map[string][]float64](ctx, c, "/list_accelerator_counts", b)
}

// KubernetesGPUs asks clusters what is free now; ssh asks the SSH node pools.
func (c *Client) KubernetesGPUs(ctx context.Context, context, name *string, quantity *float64, ssh bool) (*Request[[]api.ContextGPUs], error) {
	return post[[]api.ContextGPUs](ctx, c, "/realtime_kubernetes_gpu_availability", api.GPUAvailabilityBody{Envelope: c.envelope(), Context: context, NameFilter: name, QuantityFilter: quantity, IsSSH: &ssh})
}

// SlurmGPUs asks Slurm clusters what is free now.
func (c *Client) SlurmGPUs(ctx context.Context, name *string, quantity *float64) (*Request[[]api.ContextGPUs], error) {
	return post[[]api.ContextGPUs](ctx, c, "/slurm_gpu_availability", api.SlurmBody{Envelope: c.envelope(), NameFilter: name, QuantityFilter: quantity})
}

// SlurmNodes lists the nodes of a Slurm cluster; nil: of all.
func (c *Client) SlurmNodes(ctx context.Context, cluster *string) (*Request[[]api.SlurmNode], error) {
	return post[[]api.SlurmNode](ctx, c, "/slurm_node_info", api.SlurmBody{Envelope: c.envelope(), SlurmClusterName: cluster})
}

// KubernetesContexts lists the contexts of Kubernetes that the server can use.
func (c *Client) KubernetesContexts(ctx context.Context) (*Request[[]string], error) {
	return get[[]string](ctx, c, "/all_contexts", nil)
}

// KubernetesNodeInfo lists the nodes of a context.
func (c *Client) KubernetesNodeInfo(ctx context.Context, context *string) (*Request[api.KubernetesNodes], error) {
	return post[api.KubernetesNodes](ctx, c, "/kubernetes_node_info", api.NodeInfoBody{Envelope: c.envelope(), Context: context})
}

// LabelGPUs labels the GPU nodes of a Kubernetes context.
func (c *Client) LabelGPUs(ctx context.Context, context *string, cleanup, wait bool) (*Request[api.LabelResult], error) {
	return post[api.LabelResult](ctx, c, "/kubernetes_label_gpus", api.LabelGPUsBody{Envelope: c.envelope(), Context: context, CleanupOnly: cleanup, WaitForCompletion: &wait})
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
