package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
)

// A folder of machines is emptied by one pod on each of them, which ends when it
// is through and is removed then. Pods that a crash left do nothing any more
// after cleanPatience, and the next try begins by removing them.

// labelCleans is on pods that empty folders: which volume's.
const labelCleans = "sky-cleans"

const (
	// cleanPatience is how long one machine may take to empty a folder.
	cleanPatience = 10 * time.Minute
	// cleanScript stays on one file system: what is mounted below the folder is
	// somebody else's.
	cleanScript = `cd /volume || exit
find . -xdev -mindepth 1 -depth ! -type d -exec rm -f {} +
find . -xdev -mindepth 1 -depth -type d -exec rmdir {} +
left=$(ls -A) && [ -z "$left" ] || { echo "left: $left"; exit 1; }`
)

// cleans is the label's value of pods that empty this volume's folders.
func cleans(v *cloud.Volume) string {
	sum := sha256.Sum256([]byte(v.Installation + "\x00" + cmp.Or(v.NameOnCloud, v.Name)))
	return fmt.Sprintf("%x", sum[:8])
}

func cleanerLabels(v *cloud.Volume) map[string]string {
	labels := map[string]string{labelParent: "skypilot", labelVolume: labelValue(v.Name), labelCleans: cleans(v)}
	if v.Installation != "" {
		labels[cloud.TagInstallation] = v.Installation
	}
	return labels
}

func cleanersOf(v *cloud.Volume) string { return selector(map[string]string{labelCleans: cleans(v)}) }

// cleaners are the pods that empty this volume's folders.
func (w *target) cleaners(ctx context.Context, v *cloud.Volume) ([]pod, error) {
	pods, _, err := w.chosen(ctx, cleanersOf(v))
	return pods, err
}

// stopCleaning ends the pods that empty this volume's folders.
func (w *target) stopCleaning(ctx context.Context, v *cloud.Volume) error {
	pods, err := w.cleaners(ctx, v)
	if err != nil {
		return err
	}
	return w.remove(ctx, cleanersOf(v), pods)
}

// describeCleaner is the pod that empties the folder on a machine.
func (w *target) describeCleaner(v *cloud.Volume, machine string) obj {
	sum := sha256.Sum256([]byte(cleans(v) + "\x00" + machine))
	small := obj{"cpu": "10m", "memory": "16M"}
	spec := obj{
		// It goes where pods of tasks may have been, whatever holds now.
		"nodeName": machine, "tolerations": []any{obj{"operator": "Exists"}},
		"restartPolicy": "Never", "activeDeadlineSeconds": int(cleanPatience / time.Second), "terminationGracePeriodSeconds": 0,
		"automountServiceAccountToken": false, "enableServiceLinks": false,
		"containers": []any{obj{
			"name": "clean", "image": w.conf.shellImage(), "command": []any{"/bin/sh", "-c", cleanScript},
			"terminationMessagePolicy": "FallbackToLogsOnError",
			"securityContext":          obj{"runAsUser": 0, "runAsNonRoot": false},
			"resources":                obj{"requests": small},
			"volumeMounts":             []any{obj{"name": "volume", "mountPath": "/volume"}},
		}},
		"volumes": []any{obj{"name": "volume", "hostPath": obj{"path": v.HostPath, "type": "DirectoryOrCreate"}}},
	}
	if secrets := asList(asObj(w.conf.PodConfig["spec"])["imagePullSecrets"]); len(secrets) > 0 {
		spec["imagePullSecrets"] = secrets
	}
	return w.decorate(obj{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": obj{"name": fmt.Sprintf("sky-clean-%x", sum[:8]), "labels": texts(cleanerLabels(v))},
	})
}

// shellImage is where busybox comes from, which the user may have changed.
func (s settings) shellImage() string {
	for _, c := range asList(asObj(s.PodConfig["spec"])["initContainers"]) {
		if image, _ := asObj(c)["image"].(string); asObj(c)["name"] == shellContainer && image != "" {
			return image
		}
	}
	return shellImage
}

// folderUsers are pods in the namespace that have the folder mounted, or one in
// it, or one that it is in.
func (w *target) folderUsers(ctx context.Context, v *cloud.Volume) ([]string, error) {
	pods, err := w.allPods(ctx)
	if err != nil {
		return nil, err
	}
	var by []string
	for i := range pods {
		p := &pods[i]
		if p.ended() || p.Metadata.Labels[labelCleans] != "" {
			continue
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(pv podVolume) bool {
			h := pv.HostPath.Path
			return h != "" && h != "/" && (within(v.HostPath, h) || within(h, v.HostPath))
		}) {
			by = append(by, "pod "+p.Metadata.Name)
		}
	}
	slices.Sort(by)
	return by, nil
}

// deleteFolders empties the folder on every machine where pods may have been.
func (w *target) deleteFolders(ctx context.Context, v *cloud.Volume) error {
	by, err := w.folderUsers(ctx, v)
	if err != nil {
		return err
	}
	if len(by) > 0 {
		return &cloud.InUseError{What: "the folder " + v.HostPath, By: by}
	}
	if err := w.stopCleaning(ctx, v); err != nil || v.KeepContent {
		return err
	}
	inv, err := w.survey(ctx, false)
	if err != nil {
		return err
	}
	var silent []string
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range inv.nodes {
		m := &inv.nodes[i]
		switch {
		case !w.conf.AllowedNodes.admits(&m.node):
		case !m.ready():
			silent = append(silent, m.Metadata.Name)
		default:
			g.Go(func() error {
				return cloud.Settled(gctx, func(ctx context.Context) error {
					err := w.make(ctx, podsResource, w.describeCleaner(v, m.Metadata.Name))
					if taken(err) { // an answer of ours was lost, or another server is at it
						return nil
					}
					return err
				})
			})
		}
	}
	err = g.Wait()
	if err == nil {
		err = w.cleaned(ctx, v)
	}
	// Whatever came of it, the pods are not needed any more.
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), goingPatience)
	defer cancel()
	if serr := w.stopCleaning(undo, v); err == nil {
		err = serr
	}
	if err == nil && len(silent) > 0 {
		err = &cloud.UnreachableError{Err: fmt.Errorf("%s stays as it is on machines that do not answer: %s; delete the volume again when they are back, or without them (--purge)", v.HostPath, strings.Join(silent, ", "))}
	}
	return err
}

// cleaned waits until every pod that empties the folder has ended well.
func (w *target) cleaned(ctx context.Context, v *cloud.Volume) error {
	begun := time.Now()
	for wait := claimPause; ; wait = min(2*wait, claimPauseMost) {
		pods, err := w.cleaners(ctx, v)
		if err != nil && !is[*cloud.UnreachableError](refused(ctx, w.place(), err)) && !is[*cloud.ThrottledError](refused(ctx, w.place(), err)) {
			return err
		}
		at := map[string]string{} // what is missing, by machine
		var failed []error
		for i := range pods {
			p := &pods[i]
			switch p.Status.Phase {
			case "Succeeded":
			case "Failed":
				failed = append(failed, fmt.Errorf("machine %s: %s", p.Spec.NodeName, obituary(p)))
			case "Running":
				at[p.Spec.NodeName] = "it is being emptied"
			default:
				j := judge(p, w.place(), time.Since(begun))
				if j.err != nil {
					failed = append(failed, j.err)
				}
				at[p.Spec.NodeName] = j.doing
			}
		}
		switch {
		case len(failed) > 0:
			return &cloud.InvalidError{Place: w.place(), Err: fmt.Errorf("removing what machines have in %s: %w", v.HostPath, errors.Join(failed...))}
		case err == nil && len(at) == 0:
			return nil
		case time.Since(begun) > cleanPatience:
			var missing []string
			for _, machine := range slices.Sorted(maps.Keys(at)) {
				missing = append(missing, machine+" ("+at[machine]+")")
			}
			return &cloud.UnreachableError{Err: fmt.Errorf("%s was not emptied within %v on: %s", v.HostPath, cleanPatience, strings.Join(missing, ", "))}
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}
