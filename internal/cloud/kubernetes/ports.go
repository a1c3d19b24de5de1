package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// balancerName is the Service that the world reaches a cluster's ports through.
func balancerName(id cloud.ClusterID) string { return id.Name + "--skypilot-lb" }

// OpenPorts opens ports besides those that are open.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	places, err := p.places(id)
	if err != nil {
		return err
	}
	for _, w := range places {
		pods, _, err := w.pods(ctx, id)
		if err != nil {
			return refused(ctx, w.place(), err)
		}
		if len(pods) == 0 {
			continue
		}
		sections := p.sections()
		conf, err := newSettings(sections(w.context))
		if err != nil {
			return err
		}
		w.conf = conf
		return refused(ctx, w.place(), w.open(ctx, id, pods[0].Metadata.Labels[labelUser], ports))
	}
	return &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
}

// open makes what the settings say: a load balancer for all pods, or an ingress
// to the head; pods' own addresses need nothing.
func (w *where) open(ctx context.Context, id cloud.ClusterID, user string, ports []string) error {
	numbers, err := expand(ports)
	if err != nil {
		return &cloud.InvalidError{Place: w.place(), Err: err}
	}
	switch {
	case w.conf.Ports == "podip":
		return nil
	case w.conf.Ports == "ingress" || w.context == "kind-skypilot":
		return w.openIngress(ctx, id, user, numbers)
	}
	return w.openBalancer(ctx, id, user, numbers)
}

// mostPorts is what one Service takes with some room.
const mostPorts = 200

// expand lists the single ports.
func expand(ports []string) ([]int, error) {
	var out []int
	for _, p := range ports {
		from, to, ranged := strings.Cut(p, "-")
		if !ranged {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, berr := strconv.Atoi(to)
		if err != nil || berr != nil || a < 1 || b > 65535 || b < a {
			return nil, fmt.Errorf("%q is no port or range of ports", p)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	if len(out) > mostPorts {
		return nil, fmt.Errorf("%d ports are too many: a Kubernetes service takes up to %d", len(out), mostPorts)
	}
	return out, nil
}

type service struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Type  string `json:"type"`
		Ports []struct {
			Port int `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}

func (w *where) openBalancer(ctx context.Context, id cloud.ClusterID, user string, ports []int) error {
	services := w.Resource(servicesResource).Namespace(w.namespace)
	for {
		u, err := services.Get(ctx, balancerName(id), metav1.GetOptions{})
		switch {
		case absent(err):
			err = cloud.Settled(ctx, func(ctx context.Context) error {
				return w.make(ctx, servicesResource, w.decorate(obj{
					"apiVersion": "v1", "kind": "Service",
					"metadata": obj{"name": balancerName(id), "labels": texts(stamp(id, user)), "annotations": obj{
						"service.beta.kubernetes.io/coreweave-load-balancer-type": "public"}},
					"spec": obj{"type": "LoadBalancer", "selector": texts(id.Tags()), "ports": servicePorts(ports)},
				}))
			})
			if taken(err) {
				continue
			}
			return err
		case err != nil:
			return err
		}
		s, err := as[service](u)
		if err != nil {
			return err
		}
		missing := ports[:0:0]
		for _, n := range ports {
			if !s.has(n) {
				missing = append(missing, n)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		all := missing
		for _, p := range s.Spec.Ports {
			all = append(all, p.Port)
		}
		patch := obj{"metadata": obj{"resourceVersion": u.GetResourceVersion()}, "spec": obj{"ports": servicePorts(all)}}
		_, err = services.Patch(ctx, balancerName(id), types.MergePatchType, []byte(jsonOf(patch)), metav1.PatchOptions{FieldManager: "sky"})
		if conflictOf(err) {
			continue
		}
		return err
	}
}

func (s *service) has(port int) bool {
	for _, p := range s.Spec.Ports {
		if p.Port == port {
			return true
		}
	}
	return false
}

func servicePorts(ports []int) []any {
	var out []any
	for _, n := range ports {
		out = append(out, obj{"name": "port-" + strconv.Itoa(n), "port": n, "targetPort": n, "protocol": "TCP"})
	}
	return out
}

// openIngress makes a Service and a path for each port, through nginx.
func (w *where) openIngress(ctx context.Context, id cloud.ClusterID, user string, ports []int) error {
	labels := texts(stamp(id, user))
	for _, n := range ports {
		name := fmt.Sprintf("%s--skypilot-svc--%d", id.Name, n)
		selector := id.Tags()
		selector[cloud.TagRank] = "0"
		err := w.make(ctx, servicesResource, w.decorate(obj{
			"apiVersion": "v1", "kind": "Service", "metadata": obj{"name": name, "labels": labels},
			"spec": obj{"type": "ClusterIP", "selector": texts(selector), "ports": servicePorts([]int{n})},
		}))
		if err != nil && !taken(err) {
			return err
		}
		path := fmt.Sprintf("/skypilot/%s/%s/%d", w.namespace, id.Name, n)
		err = w.make(ctx, ingressesResource, w.decorate(obj{
			"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
			"metadata": obj{"name": fmt.Sprintf("%s-skypilot-ingress-%d", id.Name, n), "labels": labels, "annotations": obj{
				"nginx.ingress.kubernetes.io/use-regex": "true", "nginx.ingress.kubernetes.io/rewrite-target": "/$2"}},
			"spec": obj{"ingressClassName": "nginx", "rules": []any{obj{"http": obj{"paths": []any{obj{
				"path": path + "(/|$)(.*)", "pathType": "ImplementationSpecific",
				"backend": obj{"service": obj{"name": name, "port": obj{"number": n}}}}}}}}},
		}))
		if err != nil && !taken(err) {
			return err
		}
	}
	return nil
}

// decorate lays the user's metadata over an object that is made beside pods.
func (w *where) decorate(o obj) obj {
	meta := asObj(o["metadata"])
	name, labels := meta["name"], asObj(meta["labels"])
	meta = merge(meta, w.conf.Metadata)
	meta["name"], meta["labels"] = name, merge(asObj(meta["labels"]), labels)
	o["metadata"] = meta
	return o
}
