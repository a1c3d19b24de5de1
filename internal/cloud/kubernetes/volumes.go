package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

var (
	_ cloud.Volumer      = (*Provider)(nil)
	_ cloud.VolumePlacer = (*Provider)(nil)
)

// CheckVolume refuses what can never be a volume of a Kubernetes cluster.
func (p *Provider) CheckVolume(v cloud.Volume) error {
	if err := checkVolume(&v); err != nil {
		return &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: v.Place.Region}, Err: err}
	}
	return nil
}

// checkVolume is pure.
func checkVolume(v *cloud.Volume) error {
	if v.Place.Cloud != "" && v.Place.Cloud != Name {
		return fmt.Errorf("a volume of type %s is in a Kubernetes cluster, not on %s", v.Type, v.Place.Cloud)
	}
	if v.Place.Zone != "" {
		return errors.New("Kubernetes contexts have no zones")
	}
	for _, name := range []string{v.Name, v.NameOnCloud} {
		if name == "" {
			continue
		}
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
			return fmt.Errorf("%.60q cannot be the name of a volume: up to %d small letters, digits, hyphens and dots, beginning and ending with a letter or digit", name, validation.DNS1123SubdomainMaxLength)
		}
	}
	if v.Namespace != "" && len(validation.IsDNS1123Label(v.Namespace)) > 0 {
		return fmt.Errorf("%.60q cannot be a namespace", v.Namespace)
	}
	if err := checkLabels(v.Labels); err != nil {
		return err
	}
	switch v.Type {
	case cloud.VolumeClaim:
		return checkClaim(v)
	case cloud.VolumeHostPath:
		return checkHostPath(v)
	}
	return fmt.Errorf("there is no volume of type %q in Kubernetes; there are %s and %s", v.Type, cloud.VolumeClaim, cloud.VolumeHostPath)
}

func checkClaim(v *cloud.Volume) error {
	if v.HostPath != "" {
		return fmt.Errorf("host_path is for volumes of type %s", cloud.VolumeHostPath)
	}
	if v.AccessMode != "" && !slices.Contains(task.AccessModes, v.AccessMode) {
		return fmt.Errorf("there is no access mode %q; there are %s", v.AccessMode, strings.Join(task.AccessModes, ", "))
	}
	if v.Class != "" && len(validation.IsDNS1123Subdomain(v.Class)) > 0 {
		return fmt.Errorf("%.60q cannot be a storage class", v.Class)
	}
	if v.SizeGB < 0 || v.SizeGB == 0 && !v.Existing {
		return errors.New("a volume needs a size of at least 1 GB")
	}
	return nil
}

// reservedLabels say to whom things belong.
var reservedLabels = []string{cloud.TagInstallation, cloud.TagCluster, cloud.TagHash, cloud.TagRank, cloud.TagHead, labelParent, labelVolume, labelCluster}

func checkLabels(labels map[string]string) error {
	for key, value := range labels {
		switch {
		case slices.Contains(reservedLabels, key):
			return fmt.Errorf("the label %s is set by sky", key)
		case len(validation.IsQualifiedName(key)) > 0:
			return fmt.Errorf("%.60q cannot be a label", key)
		case len(validation.IsValidLabelValue(value)) > 0:
			return fmt.Errorf("label %s: %.70q cannot be a label's value: up to %d letters, digits, hyphens, dots and underscores", key, value, validation.LabelValueMaxLength)
		}
	}
	return nil
}

// system are folders without which a machine is none. What is in them is not
// removed.
var system = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr",
	"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd", "/var/lib/rancher", "/var/log", "/var/run"}

func checkHostPath(v *cloud.Volume) error {
	p := v.HostPath
	switch {
	case p == "":
		return fmt.Errorf("a volume of type %s needs a host_path", cloud.VolumeHostPath)
	case !path.IsAbs(p), path.Clean(p) == "/", slices.Contains(strings.Split(p, "/"), ".."):
		return fmt.Errorf("the host_path %q must be absolute, without .., and not /", p)
	case v.AccessMode != "" || v.Class != "":
		return fmt.Errorf("a volume of type %s has no access mode and no storage class", cloud.VolumeHostPath)
	case v.Existing:
		return fmt.Errorf("use_existing is for volumes of type %s: a folder of a machine is taken as it is, or made", cloud.VolumeClaim)
	}
	if v.KeepContent {
		return nil
	}
	for _, s := range system {
		if within(s, p) || within(p, s) {
			return fmt.Errorf("when the volume is deleted, all that machines have in %s would go, and they need %s; choose another folder, or set cleanup_on_deletion: false", path.Clean(p), s)
		}
	}
	return nil
}

// within reports whether a path is a folder or in it.
func within(folder, p string) bool {
	folder, p = path.Clean(folder), path.Clean(p)
	return p == folder || strings.HasPrefix(p, strings.TrimSuffix(folder, "/")+"/")
}

// whereOf is where a volume is or is to be: without a context the first that may
// be used, so that asking again finds the same.
func (p *Provider) whereOf(v *cloud.Volume) (*target, error) {
	sections := p.sections()
	if v.Settings != nil {
		sections = func(string) map[string]any { return v.Settings }
	}
	name := v.Place.Region
	if name == "" {
		names, err := p.contexts(catalog.Sections(sections))
		if err != nil {
			return nil, err
		}
		name = names[0]
	}
	w, err := p.at(name, sections(name))
	if err != nil {
		return nil, err
	}
	if v.Settings[config.OnlyAllowedContexts] == true && v.Namespace != "" && v.Namespace != w.namespace {
		return nil, &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf(
			"namespace %q is not the one that the server's configuration gives you in context %q, which is %q; leave namespace out", v.Namespace, name, w.namespace)}
	}
	w.namespace = cmp.Or(v.Namespace, w.namespace)
	return w, nil
}

// PlaceVolume names the context and the namespace.
func (p *Provider) PlaceVolume(v cloud.Volume) (cloud.Volume, error) {
	w, err := p.whereOf(&v)
	if err != nil {
		return v, err
	}
	v.Place, v.Namespace = w.place(), w.namespace
	return v, nil
}

// MakeVolume makes the claim of a volume. Folders of machines are made when a
// pod mounts them.
func (p *Provider) MakeVolume(ctx context.Context, v cloud.Volume) (cloud.Volume, error) {
	if err := p.CheckVolume(v); err != nil {
		return v, err
	}
	w, err := p.whereOf(&v)
	if err != nil {
		return v, err
	}
	if v.Type == cloud.VolumeHostPath {
		v.Place, v.Namespace = w.place(), w.namespace
		// What a deletion that died half way left must not go on here.
		return v, refused(ctx, w.place(), w.stopCleaning(ctx, &v))
	}
	c, err := w.made(ctx, &v)
	if err != nil {
		return v, refused(ctx, w.place(), err)
	}
	return w.filled(v, c), nil
}

// made is the volume's claim: the one that is there, or a new one.
func (w *target) made(ctx context.Context, v *cloud.Volume) (*claim, error) {
	if !v.Existing {
		return w.makeClaim(ctx, v)
	}
	c, err := w.claim(ctx, claimName(v))
	if err != nil {
		return nil, err
	}
	if why := unusable(c); why != "" {
		return nil, &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("the claim %s in namespace %s cannot be taken: %s", claimName(v), w.namespace, why)}
	}
	return c, nil
}

// unusable says why nothing can mount the claim, now or later.
func unusable(c *claim) string {
	switch {
	case c == nil:
		return "there is none"
	case c.going():
		return "it is being deleted"
	case c.Status.Phase == "Lost":
		return "it is lost: its volume " + c.Spec.Volume + " does not exist any more"
	}
	return ""
}

// DeleteVolume removes the claim, or what machines have in the folder.
func (p *Provider) DeleteVolume(ctx context.Context, v cloud.Volume) error {
	if err := p.CheckVolume(v); err != nil {
		return err
	}
	w, err := p.whereOf(&v)
	if err != nil {
		return err
	}
	return refused(ctx, w.place(), w.deleteVolume(ctx, &v))
}

func (w *target) deleteVolume(ctx context.Context, v *cloud.Volume) error {
	if v.Type == cloud.VolumeHostPath {
		return w.deleteFolders(ctx, v)
	}
	c, err := w.claim(ctx, claimName(v))
	if err != nil || c == nil {
		return err
	}
	switch {
	case v.Existing:
		pods, err := w.allPods(ctx)
		if err != nil {
			return err
		}
		var by []string
		for i := range pods {
			if !pods[i].ended() && pods[i].mounts(c.Metadata.Name) {
				by = append(by, "pod "+pods[i].Metadata.Name)
			}
		}
		if len(by) > 0 {
			return &cloud.InUseError{What: "the claim " + c.Metadata.Name, By: by}
		}
		return nil
	case !c.ours(v):
		return &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("the claim %s in namespace %s has not the labels that sky gave it (%s), and is left as it is; delete it with kubectl, or forget it here (--purge)", c.Metadata.Name, w.namespace, selector(volumeTags(v)))}
	}
	return w.deleteClaim(ctx, c)
}
