package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skypilot-go/sky/internal/cloud"
)

// labelVolume is what users call a volume.
const labelVolume = "skypilot-name"

// selectedNode is the machine that a claim's volume was or is to be made for.
const selectedNode = "volume.kubernetes.io/selected-node"

// claim is a PersistentVolumeClaim.
type claim struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		AccessModes []string `json:"accessModes"`
		Class       string   `json:"storageClassName"`
		Volume      string   `json:"volumeName"`
		Resources   struct {
			Requests map[string]string `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
	Status struct {
		Phase    string            `json:"phase"`
		Capacity map[string]string `json:"capacity"`
	} `json:"status"`
}

func (c *claim) bound() bool { return c.Status.Phase == "Bound" }
func (c *claim) going() bool { return c.Metadata.DeletionTimestamp != nil }

// sizeGB is what the claim has, or asks for while it has nothing.
func (c *claim) sizeGB() int {
	return int(amount(cmp.Or(c.Status.Capacity["storage"], c.Spec.Resources.Requests["storage"])) / (1 << 30))
}

// accessMode is the widest that the claim has.
func (c *claim) accessMode() string {
	for _, mode := range []string{cloud.ReadWriteMany, cloud.ReadWriteOnce, cloud.ReadWriteOncePod, cloud.ReadOnlyMany} {
		if slices.Contains(c.Spec.AccessModes, mode) {
			return mode
		}
	}
	return ""
}

// claimName is what the claim of a volume is called.
func claimName(v *cloud.Volume) string { return cmp.Or(v.NameOnCloud, v.Name) }

// volumeTags are how we know a claim again that we made for this volume. Only
// those of a volume that goes with a cluster have the cluster's tags.
func volumeTags(v *cloud.Volume) map[string]string {
	tags := v.Cluster.Tags()
	if v.Installation != "" {
		tags[cloud.TagInstallation] = v.Installation
	}
	tags[labelParent], tags[labelVolume] = "skypilot", labelValue(cmp.Or(v.Name, v.NameOnCloud))
	return tags
}

// ours reports whether the claim was made for this volume.
func (c *claim) ours(v *cloud.Volume) bool {
	for key, value := range volumeTags(v) {
		if c.Metadata.Labels[key] != value {
			return false
		}
	}
	return true
}

// describeClaim is the claim of a volume that is to be made.
func describeClaim(v *cloud.Volume) obj {
	labels := map[string]string{}
	maps.Copy(labels, v.Labels)
	if v.Cluster.Name != "" {
		labels[labelCluster] = v.Cluster.Name
	}
	maps.Copy(labels, volumeTags(v))
	spec := obj{
		"accessModes": []any{cmp.Or(v.AccessMode, cloud.ReadWriteOnce)},
		"resources":   obj{"requests": obj{"storage": fmt.Sprintf("%dGi", v.SizeGB)}},
	}
	if v.Class != "" {
		spec["storageClassName"] = v.Class
	}
	return obj{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
		"metadata": obj{"name": claimName(v), "labels": texts(labels)},
	}
}

// filled is the volume with what its claim says.
func (w *target) filled(v cloud.Volume, c *claim) cloud.Volume {
	v.Place, v.Namespace, v.NameOnCloud = w.place(), w.namespace, c.Metadata.Name
	v.SizeGB, v.AccessMode, v.Class = c.sizeGB(), c.accessMode(), c.Spec.Class
	return v
}

// claim finds a claim by its name; nil: there is none.
func (w *target) claim(ctx context.Context, name string) (*claim, error) {
	u, err := w.Resource(claimsResource).Namespace(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return as[claim](u)
}

// makeClaim makes the claim of a volume if it is not there.
func (w *target) makeClaim(ctx context.Context, v *cloud.Volume) (*claim, error) {
	asked := false
	for try := 1; ; {
		c, err := w.claim(ctx, claimName(v))
		switch {
		case err != nil:
			return nil, err
		case c != nil && !c.ours(v):
			return nil, &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("the claim %s in namespace %s is somebody else's, and has the name that the volume's own would have; use it as it is (use_existing: true), or give the volume another name", c.Metadata.Name, w.namespace)}
		case c != nil && !c.going():
			return c, nil
		case c != nil: // somebody wants it away; that must be over before it is made again
			if err := w.claimEnds(ctx, c); err != nil {
				return nil, err
			}
		}
		if !asked {
			if err := w.mayKeepClaims(ctx); err != nil {
				return nil, err
			}
			if err := w.classFor(ctx, v); err != nil {
				return nil, err
			}
			asked = true
		}
		err = cloud.Settled(ctx, func(ctx context.Context) error {
			return w.make(ctx, claimsResource, w.decorate(describeClaim(v)))
		})
		switch {
		case err == nil, taken(err): // whosever it is
		case apierrors.IsConflict(err) && try < conflicts: // met another's change, as of a quota
			if err := pause(ctx, time.Duration(try)*50*time.Millisecond); err != nil {
				return nil, err
			}
			try++
		default:
			return nil, err
		}
	}
}

// holders are the pods that keep a claim from going: those that mount it, and
// those that have ended and are still listed.
func holders(pods []pod, name string) (names []string) {
	for i := range pods {
		if pods[i].mounts(name) {
			n := "pod " + pods[i].Metadata.Name
			if pods[i].ended() {
				n += " (ended, and not deleted yet)"
			}
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// mounts reports whether a pod has the claim among its volumes.
func (p *pod) mounts(claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v podVolume) bool { return v.Claim.Name == claim })
}

// podVolume is what is read of a pod's volume.
type podVolume struct {
	Claim struct {
		Name string `json:"claimName"`
	} `json:"persistentVolumeClaim"`
	HostPath struct {
		Path string `json:"path"`
	} `json:"hostPath"`
}

// allPods are those of the namespace, whoever's they are.
func (w *target) allPods(ctx context.Context) ([]pod, error) {
	pods, _, err := list[pod](ctx, w.client, podsResource, w.namespace, metav1.ListOptions{})
	return pods, err
}

// deleteClaim deletes a claim that nothing holds, and waits until it is gone. To
// delete one that is held would take it away from nobody, and leave it such that
// no pod can use it any more.
func (w *target) deleteClaim(ctx context.Context, c *claim) error {
	pods, err := w.allPods(ctx)
	if err != nil {
		return err
	}
	if by := holders(pods, c.Metadata.Name); len(by) > 0 {
		return &cloud.InUseError{What: "the claim " + c.Metadata.Name, By: by}
	}
	if err := w.dropClaim(ctx, c); err != nil {
		return err
	}
	return w.claimEnds(ctx, c)
}

// dropClaim asks for a claim's deletion.
func (w *target) dropClaim(ctx context.Context, c *claim) error {
	if c.going() {
		return nil
	}
	uid := types.UID(c.Metadata.UID)
	err := w.Resource(claimsResource).Namespace(w.namespace).Delete(ctx, c.Metadata.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if absent(err) || conflictOf(err) {
		return nil // gone, and maybe another has the name by now
	}
	return err
}

const (
	// claimPatience is how long a deleted claim may take to go that nothing holds.
	claimPatience = 2 * time.Minute
	// claimPause is between two looks at one.
	claimPause = 100 * time.Millisecond
	// claimPauseMost is the longest of these pauses.
	claimPauseMost = 2 * time.Second
)

// claimEnds waits until a claim that is being deleted is gone.
func (w *target) claimEnds(ctx context.Context, old *claim) error {
	limit := time.Now().Add(claimPatience)
	for wait := claimPause; ; wait = min(2*wait, claimPauseMost) {
		cloud.ReportWait(ctx, "the claim "+old.Metadata.Name+" to be gone")
		c, err := w.claim(ctx, old.Metadata.Name)
		if err == nil && (c == nil || c.Metadata.UID != old.Metadata.UID) {
			return nil
		}
		if err != nil && !is[*cloud.UnreachableError](refused(ctx, w.place(), err)) && !apierrors.IsTooManyRequests(err) {
			return err
		}
		if err == nil && wait >= time.Second { // most are gone sooner
			pods, perr := w.allPods(ctx)
			if by := holders(pods, c.Metadata.Name); perr == nil && len(by) > 0 {
				return &cloud.InUseError{What: "the claim " + c.Metadata.Name + ", which is being deleted and goes when they are gone,", By: by}
			}
		}
		if time.Now().After(limit) {
			if err == nil {
				err = fmt.Errorf("the claim %s in namespace %s does not go away: something in the cluster holds it (its finalizers: %s)", c.Metadata.Name, w.namespace, strings.Join(c.Metadata.Finalizers, ", "))
			}
			return &cloud.UnreachableError{Err: err}
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// clearClaims removes the claims that go with a cluster and waits until they
// are gone. What the account may not even see, it has not made.
func (w *target) clearClaims(ctx context.Context, id cloud.ClusterID) error {
	claims, _, err := list[claim](ctx, w.client, claimsResource, w.namespace, metav1.ListOptions{LabelSelector: selector(id.Tags())})
	if absent(err) || is[*cloud.PermissionError](refused(ctx, w.place(), err)) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range claims {
		if err := w.dropClaim(ctx, &claims[i]); err != nil {
			return err
		}
	}
	var errs []error
	for i := range claims {
		if err := w.claimEnds(ctx, &claims[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
