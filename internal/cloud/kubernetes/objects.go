package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is read of the API's objects.

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Finalizers        []string          `json:"finalizers"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Since is when Status became what it is, by the cluster's clock.
	Since metav1.Time `json:"lastTransitionTime"`
}

type conditions []condition

func (c conditions) of(kind string) condition {
	i := slices.IndexFunc(c, func(c condition) bool { return c.Type == kind })
	if i < 0 {
		return condition{}
	}
	return c[i]
}

type pod struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		NodeName     string            `json:"nodeName"`
		NodeSelector map[string]string `json:"nodeSelector"`
		Affinity     struct {
			NodeAffinity struct {
				Required struct {
					Terms []struct {
						Expressions []struct {
							Key      string   `json:"key"`
							Operator string   `json:"operator"`
							Values   []string `json:"values"`
						} `json:"matchExpressions"`
					} `json:"nodeSelectorTerms"`
				} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
			} `json:"nodeAffinity"`
		} `json:"affinity"`
		Containers       []container       `json:"containers"`
		InitContainers   []container       `json:"initContainers"`
		Overhead         map[string]string `json:"overhead"`
		ImagePullSecrets []struct {
			Name string `json:"name"`
		} `json:"imagePullSecrets"`
		Volumes []podVolume `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase                 string            `json:"phase"`
		Reason                string            `json:"reason"`
		Message               string            `json:"message"`
		PodIP                 string            `json:"podIP"`
		Conditions            conditions        `json:"conditions"`
		ContainerStatuses     []containerStatus `json:"containerStatuses"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
	} `json:"status"`
}

type container struct {
	Name      string `json:"name"`
	Image     string `json:"image"`
	Resources struct {
		Requests map[string]string `json:"requests"`
		Limits   map[string]string `json:"limits"`
	} `json:"resources"`
}

type containerStatus struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Ready bool   `json:"ready"`
	State struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Running *struct {
			StartedAt metav1.Time `json:"startedAt"`
		} `json:"running"`
		Terminated *struct {
			ExitCode int    `json:"exitCode"`
			Reason   string `json:"reason"`
			Message  string `json:"message"`
		} `json:"terminated"`
	} `json:"state"`
}

type node struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Unschedulable bool    `json:"unschedulable"`
		Taints        []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Capacity    map[string]string `json:"capacity"`
		Allocatable map[string]string `json:"allocatable"`
		Conditions  conditions        `json:"conditions"`
		Addresses   []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

func (n *node) ready() bool { return n.Status.Conditions.of("Ready").Status == "True" }

// spot reports whether the machine may be taken back.
func (n *node) spot() bool { return n.Metadata.Labels[gkeSpotKey] == "true" }

func (n *node) address() string {
	for _, a := range n.Status.Addresses {
		if a.Type == "InternalIP" {
			return a.Address
		}
	}
	return ""
}

// object is what is read of anything else.
type object struct {
	Metadata metadata `json:"metadata"`
}

// ended reports whether a pod holds nothing of its node any more.
func (p *pod) ended() bool { return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" }

// pageSize bounds one answer of the API server.
const pageSize = 500

// cached lets the API server answer from memory, a moment old.
const cached = "0"

// page is one answer to a list.
type page[T any] struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// list reads all objects of a kind. It returns the version to watch from. What
// nobody reads of them is skipped, not decoded: machines and pods are large, and
// there may be thousands.
func list[T any](ctx context.Context, k *client, of schema.GroupVersionResource, namespace string, o metav1.ListOptions) ([]T, string, error) {
	var out []T
	if o.ResourceVersion != cached {
		o.Limit = pageSize
	}
	for {
		b, err := k.get(ctx, of, namespace, o)
		if err != nil {
			return nil, "", err
		}
		var p page[T]
		if err := json.Unmarshal(b, &p); err != nil {
			return nil, "", fmt.Errorf("the API server sent a list of %s that cannot be read: %w", of.Resource, err)
		}
		if out == nil {
			out = p.Items
		} else {
			out = append(out, p.Items...)
		}
		if o.Continue = p.Metadata.Continue; o.Continue == "" {
			return out, p.Metadata.ResourceVersion, nil
		}
		o.ResourceVersion = ""
	}
}

// get is one page of a list as the API server writes it.
func (k *client) get(ctx context.Context, of schema.GroupVersionResource, namespace string, o metav1.ListOptions) ([]byte, error) {
	path := []string{"apis", of.Group, of.Version}
	if of.Group == "" {
		path = []string{"api", of.Version}
	}
	r := k.raw.Get().AbsPath(path...).Resource(of.Resource).SetHeader("Accept", "application/json")
	if namespace != "" {
		r.Namespace(namespace)
	}
	for name, value := range map[string]string{"labelSelector": o.LabelSelector, "fieldSelector": o.FieldSelector, "resourceVersion": o.ResourceVersion, "continue": o.Continue} {
		if value != "" {
			r.Param(name, value)
		}
	}
	if o.Limit > 0 {
		r.Param("limit", strconv.FormatInt(o.Limit, 10))
	}
	res := r.Do(ctx)
	b, err := res.Raw()
	if err == nil {
		return b, nil
	}
	var said metav1.Status
	if json.Unmarshal(b, &said) == nil && said.Kind == "Status" && said.Status == metav1.StatusFailure {
		return nil, &apierrors.StatusError{ErrStatus: said}
	}
	return nil, err
}

func as[T any](u *unstructured.Unstructured) (*T, error) {
	v := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, v); err != nil {
		return nil, fmt.Errorf("the API server sent a %s that cannot be read: %w", u.GetKind(), err)
	}
	return v, nil
}

// amount reads a quantity such as 500m or 4Gi.
func amount(q string) float64 {
	if q == "" {
		return 0
	}
	v, err := resource.ParseQuantity(q)
	if err != nil {
		return 0
	}
	return v.AsApproximateFloat64()
}

// resources are amounts by resource.
type resources map[string]float64

func read(quantities map[string]string) resources {
	out := make(resources, len(quantities))
	for name, q := range quantities {
		out[name] = amount(q)
	}
	return out
}

func (r resources) add(o resources) {
	for name, v := range o {
		r[name] += v
	}
}

func (r resources) memoryGB() float64 { return r["memory"] / (1 << 30) }

// requests are what a pod takes of its node: the containers together, or the
// largest of the init containers where that is more.
func (p *pod) requests() resources {
	sum := resources{}
	for i := range p.Spec.Containers {
		sum.add(read(p.Spec.Containers[i].Resources.Requests))
	}
	for i := range p.Spec.InitContainers {
		for name, v := range read(p.Spec.InitContainers[i].Resources.Requests) {
			sum[name] = max(sum[name], v)
		}
	}
	sum.add(read(p.Spec.Overhead))
	return sum
}

// selector is a label selector for all of these.
func selector(labels map[string]string) string {
	s := ""
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if s != "" {
			s += ","
		}
		s += key
		if v := labels[key]; v != "" {
			s += "=" + v
		}
	}
	return s
}
