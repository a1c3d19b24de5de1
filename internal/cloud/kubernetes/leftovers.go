package kubernetes

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skypilot-go/sky/internal/cloud"
)

// leftovers are clusters of the installation that have no pods and still cost: a
// volume or a load balancer that went with them is there. Each is listed as one
// stopped node, since a disk that nothing runs on is just that; so whoever looks
// for what nobody owns finds it, and Terminate removes it. nodes are those that
// are listed anyway.
func (w *target) leftovers(ctx context.Context, id cloud.ClusterID, nodes []cloud.Node) ([]cloud.Node, error) {
	type key struct{ cluster, hash string }
	have := map[key]bool{}
	for _, n := range nodes {
		if n.State != cloud.NodeGone {
			have[key{n.Cluster, n.Hash}] = true
		}
	}
	labels := id.Tags()
	labels[cloud.TagCluster], labels[cloud.TagHash] = "", "" // whatever they are
	var out []cloud.Node
	for _, of := range []schema.GroupVersionResource{claimsResource, servicesResource} {
		objects, _, err := list[object](ctx, w.client, of, w.namespace, metav1.ListOptions{LabelSelector: selector(labels)})
		if absent(err) || is[*cloud.PermissionError](refused(ctx, w.place(), err)) {
			continue // what the account may not even see, it has not made
		}
		if err != nil {
			return nil, refused(ctx, w.place(), err)
		}
		for _, o := range objects {
			k := key{o.Metadata.Labels[cloud.TagCluster], o.Metadata.Labels[cloud.TagHash]}
			if have[k] {
				continue
			}
			have[k] = true
			out = append(out, cloud.Node{
				ID: o.Metadata.Name, Cluster: k.cluster, Hash: k.hash, State: cloud.NodeStopped, Place: w.place(), Created: o.Metadata.CreationTimestamp.Time,
				Reason: fmt.Sprintf("it has no pods, and %s %s is left of it", of.Resource[:len(of.Resource)-1], o.Metadata.Name),
			})
		}
	}
	return out, nil
}
