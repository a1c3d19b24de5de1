package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/registry"
)

// loginSuffix ends the names of Secrets that hold a cluster's login to the
// registry of its image.
const loginSuffix = "-skypilot-registry"

// loginName is the Secret with a cluster's login. No other cluster has the name,
// so that it is removed without reading it.
func loginName(id cloud.ClusterID) string {
	sum := sha256.Sum256([]byte(id.Installation + "\x00" + id.Name + "\x00" + id.Hash))
	return fmt.Sprintf("%s-%x%s", id.Name, sum[:5], loginSuffix)
}

const loginType = "kubernetes.io/dockerconfigjson"

// keepLogin puts the login where the machines find it when they pull. Who could
// not take it away again makes none.
func (w *target) keepLogin(ctx context.Context, id cloud.ClusterID, user string, l *registry.Login) error {
	name, secrets := loginName(id), w.Resource(secretsResource).Namespace(w.namespace)
	data := obj{".dockerconfigjson": base64.StdEncoding.EncodeToString(l.File())}
	err := secrets.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		_, err = secrets.Patch(ctx, name, types.MergePatchType, []byte(jsonOf(obj{"data": data})), metav1.PatchOptions{FieldManager: "sky"})
	}
	if absent(err) {
		err = cloud.Settled(ctx, func(ctx context.Context) error {
			return w.make(ctx, secretsResource, w.decorate(obj{
				"apiVersion": "v1", "kind": "Secret", "type": loginType, "data": data,
				"metadata": obj{"name": name, "labels": texts(stamp(id, user))},
			}))
		})
		if taken(err) { // an earlier call whose answer was lost
			err = nil
		}
	}
	if apierrors.IsForbidden(err) {
		return &cloud.PermissionError{Place: w.place(), Err: fmt.Errorf("the login to the registry (SKYPILOT_DOCKER_USERNAME) is kept in a Secret of namespace %s, which takes the right to create, patch and delete secrets; without it name a Secret that is there: kubernetes.pod_config, imagePullSecrets: %w", w.namespace, err)}
	}
	return err
}

// dropLogin removes the login. Who may not has made none.
func (w *target) dropLogin(ctx context.Context, id cloud.ClusterID) error {
	err := w.Resource(secretsResource).Namespace(w.namespace).Delete(ctx, loginName(id), metav1.DeleteOptions{})
	if absent(err) || is[*cloud.PermissionError](refused(ctx, w.place(), err)) {
		return nil
	}
	return err
}

// pullProblem is what the words of a registry, or of whoever did not reach it,
// mean.
type pullProblem int

const (
	pullSilent  pullProblem = iota // no answer, or one that may change by itself
	pullLimited                    // too many pulls
	pullRefused                    // by the registry, for want of a login or a right
	pullAbsent                     // there is no such image
	pullInvalid                    // it never works as it is
)

func problemOf(message string) pullProblem {
	m := strings.ToLower(message)
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m, w) })
	}
	switch {
	case says("toomanyrequests", "too many requests"):
		return pullLimited
	case says("unauthorized", "authorization failed", "authentication required", "denied", "forbidden"):
		return pullRefused
	case says("not found", "notfound", "manifest unknown", "name unknown"):
		return pullAbsent
	case says("no match for platform", "invalid reference", "gave http response to https client", "certificate", "no such host"):
		return pullInvalid
	}
	return pullSilent
}

// unpulled is why an image did not come, and what to do.
func unpulled(p *pod, image, message string) error {
	host := registry.HostOf(image)
	switch problemOf(message) {
	case pullRefused:
		return fmt.Errorf("the image %s cannot be pulled, as %s refuses %s: %s", image, host, p.login(), message)
	case pullAbsent:
		return fmt.Errorf("the image %s cannot be pulled, as %s has none of that name and tag: %s", image, host, message)
	}
	return fmt.Errorf("the image %s cannot be pulled: %s", image, message)
}

// login is how a pod's machine logs in to registries, as part of a sentence, with
// what to do.
func (p *pod) login() string {
	var others []string
	for _, s := range p.Spec.ImagePullSecrets {
		if strings.HasSuffix(s.Name, loginSuffix) {
			return "the task's login; look at SKYPILOT_DOCKER_USERNAME, SKYPILOT_DOCKER_PASSWORD and SKYPILOT_DOCKER_SERVER, and at the image's name"
		}
		others = append(others, s.Name)
	}
	if len(others) > 0 {
		return fmt.Sprintf("the login of %s (imagePullSecrets); look whether the secret is in namespace %s, names this registry and has the right password, and at the image's name", strings.Join(others, ", "), p.Metadata.Namespace)
	}
	return "who does not log in; set SKYPILOT_DOCKER_USERNAME, SKYPILOT_DOCKER_PASSWORD and SKYPILOT_DOCKER_SERVER in the task's secrets, or name a Secret in kubernetes.pod_config (imagePullSecrets)"
}
