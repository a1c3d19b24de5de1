package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// balancerName is the Service that the world reaches a cluster's ports through.
func balancerName(id cloud.ClusterID) string { return id.Name + "--skypilot-lb" }

// here finds the place where a cluster has pods, with the settings that hold
// there.
func (p *Provider) here(ctx context.Context, id cloud.ClusterID) (*target, []pod, error) {
	places, err := p.places(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	sections := p.sections()
	for _, w := range places {
		pods, _, err := w.pods(ctx, id)
		if err != nil {
			return nil, nil, refused(ctx, w.place(), err)
		}
		if len(pods) == 0 {
			continue
		}
		if w.conf, err = newSettings(sections(w.context)); err != nil {
			return nil, nil, err
		}
		return w, pods, nil
	}
	return nil, nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("there is no cluster %s", id.Name)}
}

// OpenPorts opens ports besides those that are open.
func (p *Provider) OpenPorts(ctx context.Context, id cloud.ClusterID, ports []string) error {
	w, pods, err := p.here(ctx, id)
	if err != nil {
		return err
	}
	return refused(ctx, w.place(), w.open(ctx, id, pods[0].Metadata.Labels[labelUser], ports))
}

// ingressPath is where a port of a cluster is on the ingress.
func (w *target) ingressPath(id cloud.ClusterID, port int) string {
	return fmt.Sprintf("/skypilot/%s/%s/%d", w.namespace, id.Name, port)
}

func ingressName(id cloud.ClusterID, port int) string {
	return fmt.Sprintf("%s-skypilot-ingress-%d", id.Name, port)
}

// Endpoints is where the ports are reached: at the load balancer or the ingress
// that was made for them; without one at the pod's own address.
func (p *Provider) Endpoints(ctx context.Context, id cloud.ClusterID, ports []int) (map[int]string, string, error) {
	w, pods, err := p.here(ctx, id)
	if err != nil {
		return nil, "", err
	}
	at, why := map[int]string{}, ""
	host, made, err := w.address(ctx, servicesResource, balancerName(id))
	if err != nil {
		return nil, "", refused(ctx, w.place(), err)
	}
	if made && host == "" {
		return at, "the load balancer " + balancerName(id) + " has no address, which the cluster's cloud or a controller such as MetalLB gives it; kubernetes.ports has other ways", nil
	}
	for _, n := range ports {
		if made {
			at[n] = net.JoinHostPort(host, strconv.Itoa(n))
			continue
		}
		host, made, err := w.address(ctx, ingressesResource, ingressName(id, n))
		switch {
		case err != nil && !apierrors.IsForbidden(err): // who may not see it has not made it
			return nil, "", refused(ctx, w.place(), err)
		case made && host == "":
			why = "the ingress " + ingressName(id, n) + " has no address, which an ingress controller of class " + ingressClass + " gives it"
		case made:
			at[n] = "http://" + host + w.ingressPath(id, n)
		default:
			if i := slices.IndexFunc(pods, func(p pod) bool { return p.rank() == 0 && p.Status.PodIP != "" }); i >= 0 {
				at[n] = net.JoinHostPort(pods[i].Status.PodIP, strconv.Itoa(n))
			}
		}
	}
	return at, why, nil
}

// address is what a controller says that a Service or Ingress is reached at, ""
// if nothing yet, and whether there is such an object.
func (w *target) address(ctx context.Context, of schema.GroupVersionResource, name string) (host string, made bool, err error) {
	u, err := w.Resource(of).Namespace(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if absent(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	o, err := as[balanced](u)
	if err != nil {
		return "", false, err
	}
	for _, in := range o.Status.LoadBalancer.Ingress {
		if a := cmp.Or(in.IP, in.Hostname); a != "" {
			return a, true, nil
		}
	}
	return "", true, nil
}

// balanced is what is read of a Service or Ingress that a controller gave an
// address.
type balanced struct {
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP       string `json:"ip"`
				Hostname string `json:"hostname"`
			} `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// open makes what the settings say: a load balancer for all pods, or an ingress
// to the head; pods' own addresses need nothing.
func (w *target) open(ctx context.Context, id cloud.ClusterID, user string, ports []string) error {
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
		a, b, err := cloud.PortRange(p)
		if err != nil {
			return nil, err
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

func (w *target) openBalancer(ctx context.Context, id cloud.ClusterID, user string, ports []int) error {
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
		if err := w.own(id, "service", &s.Metadata); err != nil {
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

// ingressClass is the kind of ingress whose annotations ours have.
const ingressClass = "nginx"

// hasIngress refuses where nobody would do anything about an ingress. Who may not
// see whether somebody does is believed.
func (w *target) hasIngress(ctx context.Context) error {
	_, err := w.Resource(ingressClassesResource).Get(ctx, ingressClass, metav1.GetOptions{ResourceVersion: cached})
	switch {
	case absent(err):
		return &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("kubernetes.ports is ingress, and the cluster has no ingress class %s: install ingress-nginx (helm install ingress-nginx ingress-nginx --repo https://kubernetes.github.io/ingress-nginx), or set kubernetes.ports to loadbalancer or podip", ingressClass)}
	case apierrors.IsForbidden(err):
		return nil
	}
	return err
}

// openIngress makes a Service and a path for each port, through nginx.
func (w *target) openIngress(ctx context.Context, id cloud.ClusterID, user string, ports []int) error {
	if err := w.hasIngress(ctx); err != nil {
		return err
	}
	labels := texts(stamp(id, user))
	for _, n := range ports {
		name := fmt.Sprintf("%s--skypilot-svc--%d", id.Name, n)
		selector := id.Tags()
		selector[cloud.TagRank] = "0"
		err := w.make(ctx, servicesResource, w.decorate(obj{
			"apiVersion": "v1", "kind": "Service", "metadata": obj{"name": name, "labels": labels},
			"spec": obj{"type": "ClusterIP", "selector": texts(selector), "ports": servicePorts([]int{n})},
		}))
		if err := w.madeOrOwn(ctx, servicesResource, "service", id, name, err); err != nil {
			return err
		}
		ingress := ingressName(id, n)
		err = w.make(ctx, ingressesResource, w.decorate(obj{
			"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
			"metadata": obj{"name": ingress, "labels": labels, "annotations": obj{
				"nginx.ingress.kubernetes.io/use-regex": "true", "nginx.ingress.kubernetes.io/rewrite-target": "/$2"}},
			"spec": obj{"ingressClassName": ingressClass, "rules": []any{obj{"http": obj{"paths": []any{obj{
				"path": w.ingressPath(id, n) + "(/|$)(.*)", "pathType": "ImplementationSpecific",
				"backend": obj{"service": obj{"name": name, "port": obj{"number": n}}}}}}}}},
		}))
		if err := w.madeOrOwn(ctx, ingressesResource, "ingress", id, ingress, err); err != nil {
			return err
		}
	}
	return nil
}

// madeOrOwn takes the outcome of making an object: that there is one already is
// success if it is the cluster's.
func (w *target) madeOrOwn(ctx context.Context, of schema.GroupVersionResource, kind string, id cloud.ClusterID, name string, made error) error {
	if !taken(made) {
		return made
	}
	u, err := w.Resource(of).Namespace(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	o, err := as[object](u)
	if err != nil {
		return err
	}
	return w.own(id, kind, &o.Metadata)
}

// own refuses to use what only has the name of the cluster's: it would not go
// with the cluster, and is somebody else's way to something else.
func (w *target) own(id cloud.ClusterID, kind string, m *metadata) error {
	for key, value := range id.Tags() {
		if m.Labels[key] != value {
			return &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("the %s %s in namespace %s is not this cluster's, and has the name that its own would have; remove it, or give the cluster another name", kind, m.Name, w.namespace)}
		}
	}
	return nil
}

// decorate lays the user's metadata over an object that is made beside pods.
func (w *target) decorate(o obj) obj {
	meta := asObj(o["metadata"])
	name, labels := meta["name"], asObj(meta["labels"])
	meta = merge(meta, w.conf.Metadata)
	meta["name"], meta["labels"] = name, merge(asObj(meta["labels"]), labels)
	o["metadata"] = meta
	return o
}
