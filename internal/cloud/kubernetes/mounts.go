package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skypilot-go/sky/internal/cloud"
)

const (
	// homeMounts is where volumes are that tasks want below the home folder: only
	// the pod knows where that is, and links to them.
	homeMounts = "/opt/sky-volumes"
	// volumeGroup owns what is in volumes, so that images with different users can
	// share them.
	volumeGroup = 1000
	// exitLinks is what a pod's first process ends with that could not put a volume
	// into the home folder.
	exitLinks = 78
)

// podFolders are what no volume may hide.
var podFolders = []string{"/dev", "/proc", "/sys", AgentDir, homeMounts}

// inHome is the part of a mount's path below the home folder.
func inHome(p string) (rest string, ok bool) {
	if p == "~" {
		return "", true
	}
	return strings.CutPrefix(p, "~/")
}

// checkMounts refuses what cannot be mounted into a cluster's pods. It is pure.
func (w *target) checkMounts(spec *cloud.LaunchSpec) error {
	var paths []string
	for _, m := range spec.Volumes {
		v := &m.Volume
		if err := checkVolume(v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if err := checkMountPath(m.Path); err != nil {
			return err
		}
		if s := m.SubPath; s != "" && (path.IsAbs(s) || slices.Contains(strings.Split(s, "/"), "..")) {
			return fmt.Errorf("sub_path %q of volume %s must be relative and without ..", s, v.Name)
		}
		switch {
		case v.Place.Region != "" && v.Place.Region != w.context:
			return fmt.Errorf("volume %s is in context %s, and the pods would be in %s", v.Name, v.Place.Region, w.context)
		case v.Namespace != "" && v.Namespace != w.namespace && v.Type == cloud.VolumeClaim:
			return fmt.Errorf("volume %s is in namespace %s, and the pods would be in %s (kubernetes.namespace)", v.Name, v.Namespace, w.namespace)
		case v.Cluster != (cloud.ClusterID{}) && v.Cluster != spec.ID:
			return fmt.Errorf("volume %s goes with the cluster %s", v.Name, v.Cluster.Name)
		case spec.Nodes > 1 && v.Type == cloud.VolumeClaim && (v.AccessMode == "" || v.AccessMode == cloud.ReadWriteOnce || v.AccessMode == cloud.ReadWriteOncePod):
			mode := v.AccessMode
			if mode == "" {
				mode = cloud.ReadWriteOnce
			}
			return fmt.Errorf("volume %s with access mode %s is not for several nodes; %s is", v.Name, mode, cloud.ReadWriteMany)
		}
		paths = append(paths, path.Clean(m.Path))
	}
	for i, a := range paths {
		for _, b := range paths[:i] {
			_, home := inHome(a)
			if a == b || home && (within(a, b) || within(b, a)) {
				return fmt.Errorf("two volumes cannot be mounted at %s and %s", b, a)
			}
		}
	}
	return nil
}

func checkMountPath(p string) error {
	if rest, ok := inHome(p); ok {
		switch {
		case path.Clean(rest) == ".":
			return errors.New("a volume cannot be the home folder (~): what the image and sky have there would be hidden; mount it at ~/NAME")
		case slices.Contains(strings.Split(rest, "/"), ".."):
			return fmt.Errorf("a volume's path must be without ..: %s", p)
		}
		return nil
	}
	if !path.IsAbs(p) || strings.Contains(p, ":") {
		return fmt.Errorf("a volume is mounted at an absolute path or at ~/NAME, without a colon, not at %q", p)
	}
	for _, f := range podFolders {
		if within(f, p) || within(p, f) {
			return fmt.Errorf("a volume cannot be mounted at %s: it would hide %s, which the pod needs itself", p, f)
		}
	}
	return nil
}

// addVolumes puts the cluster's volumes into a pod's specification.
func (w *podRequest) addVolumes(spec obj) {
	if len(w.spec.Volumes) == 0 {
		return
	}
	volumes, mounts := asList(spec["volumes"]), []any{}
	names := map[string]string{} // of the pod's volumes, by source
	for i := range w.spec.Volumes {
		m := &w.spec.Volumes[i]
		source := volumeSource(&m.Volume)
		key := jsonOf(source)
		if names[key] == "" {
			names[key] = "sky-volume-" + strconv.Itoa(len(names))
			source["name"] = names[key]
			volumes = append(volumes, source)
		}
		mount := obj{"name": names[key], "mountPath": path.Clean(m.Path)}
		if _, ok := inHome(m.Path); ok {
			mount["mountPath"] = homeMount(i)
		}
		if m.SubPath != "" {
			mount["subPath"] = path.Clean(m.SubPath)
		}
		if m.Volume.AccessMode == cloud.ReadOnlyMany {
			mount["readOnly"] = true
		}
		mounts = append(mounts, mount)
	}
	spec["volumes"] = volumes
	node := asObj(asList(spec["containers"])[0])
	node["volumeMounts"] = append(asList(node["volumeMounts"]), mounts...)
	spec["securityContext"] = obj{"fsGroup": volumeGroup, "fsGroupChangePolicy": "OnRootMismatch"}
}

func volumeSource(v *cloud.Volume) obj {
	if v.Type == cloud.VolumeHostPath {
		return obj{"hostPath": obj{"path": v.HostPath, "type": "DirectoryOrCreate"}}
	}
	source := obj{"claimName": claimName(v)}
	if v.AccessMode == cloud.ReadOnlyMany {
		source["readOnly"] = true
	}
	return obj{"persistentVolumeClaim": source}
}

// homeMount is where the volume of that number is mounted if the task wants it
// below the home folder.
func homeMount(i int) string { return homeMounts + "/" + strconv.Itoa(i) }

// linkScript are the functions of a pod's first process that have to do with
// volumes and need to know the home folder.
const linkScript = `skyno() { # WHY
  echo "$1" >&2; echo "$1" >/dev/termination-log
  exit %d
}
skyhome() { # PATH of a mount
  h=${HOME:-/}
  case "${h%%/}/" in "$1"/*) skyno "a volume at $1 would hide the home folder $h, where sky keeps what belongs to this cluster alone; mount it below it" ;; esac
}
skylink() { # PATH in the home folder, TARGET
  h=${HOME:-/}; p="${h%%/}/$1"
  if [ -L "$p" ]; then rm -f "$p"; elif [ -d "$p" ]; then rmdir "$p" 2>/dev/null; fi
  if [ ! -e "$p" ]; then mkdir -p "${p%%/*}" 2>/dev/null; ln -s "$2" "$p" 2>/dev/null && return; fi
  [ -e "$p" ] && w="the image has something there" || w="the image's user ($(id -u 2>/dev/null)) may not write there"
  skyno "the volume for ~/$1 cannot be put at $p: $w; mount it at an absolute path"
}
`

// links is a script that puts volumes into the home folder of the image's user,
// before anything else is done there. Neither what the image has there nor the
// home folder itself is hidden.
func links(mounts []cloud.VolumeMount) string {
	if len(mounts) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, linkScript, exitLinks)
	for i, m := range mounts {
		if rest, ok := inHome(m.Path); ok {
			fmt.Fprintf(&b, "skylink %s %s\n", quotedForShell(path.Clean(rest)), homeMount(i))
			continue
		}
		fmt.Fprintf(&b, "skyhome %s\n", quotedForShell(path.Clean(m.Path)))
	}
	return b.String()
}

func quotedForShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// keepVolumes makes the volumes that go with a cluster.
func (w *target) keepVolumes(ctx context.Context, spec *cloud.LaunchSpec) error {
	for i := range spec.Volumes {
		v := spec.Volumes[i].Volume
		if v.Cluster != spec.ID || v.Type != cloud.VolumeClaim {
			continue
		}
		if _, err := w.makeClaim(ctx, &v); err != nil {
			return fmt.Errorf("making volume %s: %w", claimName(&v), err)
		}
	}
	return nil
}

// ownVolumes reports whether some of the volumes go with the cluster.
func ownVolumes(spec *cloud.LaunchSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(m cloud.VolumeMount) bool { return m.Volume.Cluster == spec.ID })
}

// claimNames are the claims that the cluster's pods mount.
func claimNames(spec *cloud.LaunchSpec) []string {
	var names []string
	for i := range spec.Volumes {
		if v := &spec.Volumes[i].Volume; v.Type == cloud.VolumeClaim && !slices.Contains(names, claimName(v)) {
			names = append(names, claimName(v))
		}
	}
	return names
}

// readyVolumes refuses to make pods that nothing could ever start, as a claim is
// not there, and finds out whether some claim has no volume yet: to make one
// takes its time.
func (l *launch) readyVolumes(ctx context.Context) error {
	for i := range l.spec.Volumes {
		v := &l.spec.Volumes[i].Volume
		if v.Type != cloud.VolumeClaim {
			continue
		}
		l.slowVolumes = l.slowVolumes || v.AccessMode == cloud.ReadWriteMany
		c, err := l.claim(ctx, claimName(v))
		if apierrors.IsForbidden(err) {
			continue // pods may mount what their maker may not see
		}
		if err != nil {
			return err
		}
		if why := unusable(c); why != "" {
			return &cloud.InvalidError{Place: l.place(), Err: fmt.Errorf("the claim %s of volume %s in namespace %s cannot be mounted: %s", claimName(v), v.Name, l.namespace, why)}
		}
		l.slowVolumes = l.slowVolumes || !c.bound()
	}
	return nil
}

// volumeTroubles says what keeps pods that got no node from their volumes, for
// people.
func (l *launch) volumeTroubles(ctx context.Context) string {
	names := claimNames(&l.spec)
	if len(names) == 0 {
		return ""
	}
	unbound, fixed, _ := l.claimTroubles(ctx, names) // what is not known is not said
	all := slices.Concat(unbound, fixed)
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "; ") + "; "
}
