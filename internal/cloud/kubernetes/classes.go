package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skypilot-go/sky/internal/cloud"
)

// storageClass is a kind of disks.
type storageClass struct {
	Metadata    metadata `json:"metadata"`
	Provisioner string   `json:"provisioner"`
	Binding     string   `json:"volumeBindingMode"`
}

// waits reports whether disks of the class are made when a pod wants them, near
// to it.
func (c *storageClass) waits() bool { return c.Binding == "WaitForFirstConsumer" }

// byDefault reports whether it is for claims that name none.
func (c *storageClass) byDefault() bool {
	for _, key := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
		if c.Metadata.Annotations[key] == "true" {
			return true
		}
	}
	return false
}

// classes are the cluster's storage classes. known is false where the account
// may not see them.
func (w *target) classes(ctx context.Context) (all []storageClass, known bool, err error) {
	all, _, err = list[storageClass](ctx, w.client, classesResource, "", metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	return all, err == nil, err
}

// classFor refuses a claim whose storage class does not exist: nothing would
// ever come of it.
func (w *target) classFor(ctx context.Context, v *cloud.Volume) error {
	all, known, err := w.classes(ctx)
	if err != nil || !known {
		return err
	}
	if why := missingClass(all, v.Class); why != nil {
		return &cloud.InvalidError{Place: w.place(), Err: why}
	}
	return nil
}

// missingClass says what is wrong with the name of a storage class; "" is
// the default. It is pure.
func missingClass(all []storageClass, name string) error {
	var names []string
	found := false
	for i := range all {
		names = append(names, all[i].Metadata.Name)
		found = found || all[i].Metadata.Name == name || name == "" && all[i].byDefault()
	}
	slices.Sort(names)
	there := strings.Join(names, ", ")
	switch {
	case found:
		return nil
	case len(names) == 0:
		return errors.New("the cluster has no storage class, so nothing makes volumes there; install one, or use a claim that exists (use_existing: true)")
	case name == "":
		return fmt.Errorf("the cluster has no default storage class; name one (config: {storage_class_name: …}): %s", there)
	}
	return fmt.Errorf("there is no storage class %q; there are: %s", name, there)
}
