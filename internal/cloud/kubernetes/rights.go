package kubernetes

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skypilot-go/sky/internal/cloud"
)

// review is the answer to the question what an account may do.
type review struct {
	Status struct {
		Allowed         bool   `json:"allowed"`
		EvaluationError string `json:"evaluationError"`
	} `json:"status"`
}

// may asks whether the account may do that in the namespace. An API server that
// does not answer such questions is taken to agree; the error is that of ctx.
func (w *target) may(ctx context.Context, verb, resource, sub string) (bool, error) {
	q := obj{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": obj{"resourceAttributes": obj{
		"namespace": w.namespace, "verb": verb, "version": "v1", "resource": resource, "subresource": sub}}}
	u, err := w.Resource(reviewsResource).Create(ctx, &unstructured.Unstructured{Object: q}, metav1.CreateOptions{})
	if err != nil {
		return true, ctx.Err()
	}
	a, err := as[review](u)
	return err != nil || a.Status.Allowed || a.Status.EvaluationError != "", nil
}

// mayRent refuses an account that may not make pods and run commands in them:
// one that may only look is no place for anything.
func (w *target) mayRent(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	for sub, what := range map[string]string{"": "make pods", "exec": "run commands in pods (pods/exec)"} {
		g.Go(func() error {
			ok, err := w.may(gctx, "create", "pods", sub)
			if err == nil && !ok {
				err = &cloud.PermissionError{Place: w.place(), Err: fmt.Errorf("the account may look, and may not %s in namespace %s", what, w.namespace)}
			}
			return err
		})
	}
	return g.Wait()
}

// claimVerbs are what it takes to make a claim, to find it again and to remove it.
var claimVerbs = []string{"get", "list", "create", "delete"}

// mayKeepClaims refuses to make what the account could not remove.
func (w *target) mayKeepClaims(ctx context.Context) error {
	may := make([]bool, len(claimVerbs))
	g, gctx := errgroup.WithContext(ctx)
	for i, verb := range claimVerbs {
		g.Go(func() (err error) {
			may[i], err = w.may(gctx, verb, claimsResource.Resource, "")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var not []string
	for i, verb := range claimVerbs {
		if !may[i] {
			not = append(not, verb)
		}
	}
	if len(not) == 0 {
		return nil
	}
	return &cloud.PermissionError{Place: w.place(), Err: fmt.Errorf("volumes need the right to %s persistentvolumeclaims in namespace %s, which the account has not", strings.Join(not, ", "), w.namespace)}
}
