package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// refused turns an API server's refusal into an error of package cloud; nil
// stays nil, and so does what is one already.
func refused(ctx context.Context, place cloud.Place, err error) error {
	if err == nil || translated(err) {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var unknown *contextError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &unknown):
		return &cloud.InvalidError{Place: place, Err: err}
	case credentialsFailed(err):
		return &cloud.AuthError{Cloud: Name, Region: place.Region, Err: err, Fix: "run: kubectl --context " + quoted(place.Region) + " get pods; it names what is missing, such as a plugin or a login"}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return &cloud.QuotaError{Place: place, Err: err}
	case violates(err):
		return &cloud.InvalidError{Place: place, Err: fmt.Errorf("a rule of the cluster refuses it: %w; %s", err, remedy(err))}
	case silentHook(err) != "":
		return &cloud.UnreachableError{Err: fmt.Errorf("Kubernetes context %s: the admission webhook %s gives no answer, and nothing is changed there without one (failurePolicy: Fail); whoever runs the cluster must mend or remove it (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations): %w",
			quoted(place.Region), silentHook(err), err)}
	case apierrors.IsUnauthorized(err):
		return &cloud.AuthError{Cloud: Name, Region: place.Region, Err: err, Fix: fmt.Sprintf("log in again, or renew the user of context %s in the kubeconfig; try: kubectl --context %[1]s get pods", quoted(place.Region))}
	case apierrors.IsForbidden(err):
		return &cloud.PermissionError{Place: place, Err: err}
	case apierrors.IsTooManyRequests(err):
		return throttled(place, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return &cloud.InvalidError{Place: place, Err: err}
	case errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && status.Status().Code >= 400:
		return err
	}
	return &cloud.UnreachableError{Err: fmt.Errorf("Kubernetes context %s: %w", quoted(place.Region), err)}
}

func throttled(place cloud.Place, err error) error {
	return &cloud.ThrottledError{Err: fmt.Errorf("the API server of Kubernetes context %s has too much to do and asks to slow down: %w", quoted(place.Region), err)}
}

// violates says what webhooks, policies, limit ranges, pod security and other
// built-in rules refuse from what the account may not do: only the latter is about
// a user and a verb.
func violates(err error) bool {
	s := err.Error()
	if strings.Contains(s, "denied the request") && strings.Contains(s, "admission webhook") || strings.Contains(s, "denied request") && strings.Contains(s, "ValidatingAdmissionPolicy") {
		return true
	}
	return apierrors.IsForbidden(err) && strings.Contains(s, " is forbidden: ") && !(strings.Contains(s, `User "`) && strings.Contains(s, `" cannot `))
}

// remedy is what to do about a rule.
func remedy(err error) string {
	if s := err.Error(); strings.Contains(s, "failed quota") && strings.Contains(s, "must specify") {
		return "give pods limits (kubernetes.set_pod_resource_limits: true), or what else it names (kubernetes.pod_config)"
	}
	return "give pods what it asks for (kubernetes.pod_config), or ask who runs the cluster"
}

var hookFailed = lazyregexp.New(`failed calling webhook "([^"]+)"`)

// silentHook is the webhook without whose word the API server does nothing, and
// that it cannot reach or make sense of.
func silentHook(err error) string {
	if m := hookFailed.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

// credentialsFailed: the user's way to log in failed before anything was asked.
func credentialsFailed(err error) bool {
	s := err.Error()
	return strings.Contains(s, "getting credentials: ") || strings.Contains(s, "no Auth Provider found")
}

func translated(err error) bool {
	return is[*cloud.InvalidError](err) || is[*cloud.CapacityError](err) || is[*cloud.QuotaError](err) || is[*cloud.AuthError](err) ||
		is[*cloud.PermissionError](err) || is[*cloud.ThrottledError](err) || is[*cloud.UnreachableError](err) || is[*cloud.InUseError](err)
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func quoted(context string) string {
	if strings.ContainsAny(context, " \t'\"$") || context == "" {
		return fmt.Sprintf("%q", context)
	}
	return context
}

func absent(err error) bool { return apierrors.IsNotFound(err) }
func taken(err error) bool  { return apierrors.IsAlreadyExists(err) }

func conflictOf(err error) bool { return apierrors.IsConflict(err) }
