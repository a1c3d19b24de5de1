package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// The versions of the APIs that this package is written for.
const (
	apiSubscriptions = "2022-12-01" // Microsoft.Resources: subscriptions
	apiResources     = "2021-04-01" // Microsoft.Resources: groups, resources, providers
	apiCompute       = "2024-11-01" // Microsoft.Compute: machines, usages, images of publishers
	apiSKUs          = "2021-07-01" // Microsoft.Compute: skus
	apiDisks         = "2024-03-02" // Microsoft.Compute: disks, snapshots
	apiGalleries     = "2024-03-03" // Microsoft.Compute: galleries
	apiNetwork       = "2024-05-01" // Microsoft.Network
	apiIdentity      = "2023-01-31" // Microsoft.ManagedIdentity
	apiAuthorization = "2022-04-01" // Microsoft.Authorization
)

// get reads a resource.
func get[T any](ctx context.Context, a *account, path, version string, query ...string) (T, error) {
	return rest.Send[T](ctx, a.Client, rest.Call{Method: "GET", Path: path, Query: with(version, query)})
}

// with is a query: the version, and further pairs of names and values.
func with(version string, pairs []string) url.Values {
	q := url.Values{"api-version": {version}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

// list reads all pages of a list. The address of the next page must be of the same server,
// which alone gets the credentials.
func list[T any](ctx context.Context, a *account, path, version string, query ...string) ([]T, error) {
	return rest.All(ctx, func(ctx context.Context, next string) ([]T, string, error) {
		call := rest.Call{Method: "GET", Path: path, Query: with(version, query)}
		if next != "" {
			local, err := a.login.local(next)
			if err != nil {
				return nil, "", err
			}
			call = rest.Call{Method: "GET", Path: local}
		}
		page, err := rest.Send[struct {
			Value []T    `json:"value"`
			Next  string `json:"nextLink"`
		}](ctx, a.Client, call)
		return page.Value, page.Next, err
	})
}

// local is the path and query of an address that Azure gave.
func (l *login) local(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host != l.endpoint.Host || u.Scheme != l.endpoint.Scheme {
		return "", &rest.NoAnswerError{Cloud: displayName, Err: fmt.Errorf("it refers to %q, which is not at %s", address, l.endpoint.Host)}
	}
	return strings.TrimPrefix(u.RequestURI(), l.endpoint.Path), nil
}

// operation is a change that goes on by itself; nil: it is done.
type operation struct {
	about string // the path of the resource
	url   string // to ask, where there is one
	async bool   // url answers with a status, by the header Azure-AsyncOperation
	after time.Duration
}

// How often and how long what is busy is tried again.
const (
	busyTries = 12
	mostPause = 15 * time.Second
)

// busy are refusals that Azure wants repeated.
var busy = map[string]bool{"AnotherOperationInProgress": true, "RetryableError": true, "RetryableErrorDueToAnotherOperation": true, "ReferencedResourceNotProvisioned": true}

// change makes a call that changes something. What is busy is asked for again.
func (a *account) change(ctx context.Context, method, path, version string, body any, query ...string) (*operation, error) {
	for try := 0; ; try++ {
		var reply rest.Reply
		answer, err := rest.Send[resource](ctx, a.Client, rest.Call{Method: method, Path: path, Query: with(version, query), Body: body, Reply: &reply})
		if err == nil {
			return a.began(path, reply, answer), nil
		}
		var refused *rest.Error
		if !errors.As(err, &refused) || !busy[refused.Code] || try == busyTries || method == http.MethodDelete { // deletions are begun again anyway
			return nil, err
		}
		if err := pause(ctx, max(reply.RetryAfter(), min(time.Second<<try, mostPause))); err != nil {
			return nil, err
		}
	}
}

// resource is what all have in common.
type resource struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		State string `json:"provisioningState"`
	} `json:"properties"`
}

// began reads how the outcome of a change can be learnt.
//
// https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
func (a *account) began(path string, reply rest.Reply, answer resource) *operation {
	op := &operation{about: path, url: reply.Header.Get("Azure-AsyncOperation"), async: true, after: reply.RetryAfter()}
	switch {
	case op.url != "":
	case reply.Status == http.StatusAccepted && reply.Header.Get("Location") != "":
		op.url, op.async = reply.Header.Get("Location"), false
	case reply.Status == http.StatusAccepted || reply.Status == http.StatusCreated:
		if s := answer.Properties.State; s == "" || s == "Succeeded" {
			return nil
		}
	default:
		return nil
	}
	return op
}

// wait asks until the operation is done. Its error is why it failed: a [*rest.Error].
func (a *account) wait(ctx context.Context, op *operation, version string) error {
	for next := time.Second; op != nil; next = min(2*next, mostPause) {
		if err := pause(ctx, max(min(op.after, mostPause), min(next, mostPause))); err != nil {
			return err
		}
		done, err := a.ask(ctx, op, version)
		if done || err != nil {
			return err
		}
	}
	return nil
}

func (a *account) ask(ctx context.Context, op *operation, version string) (done bool, err error) {
	if op.url == "" {
		r, err := get[resource](ctx, a, op.about, version)
		if err == nil && r.Properties.State == "Failed" {
			err = &rest.Error{Status: http.StatusBadRequest, Message: op.about + " failed, and Azure does not say why"}
		}
		return r.Properties.State == "Succeeded" || r.Properties.State == "", err
	}
	path, err := a.login.local(op.url)
	if err != nil {
		return false, err
	}
	var reply rest.Reply
	said, err := rest.Send[struct {
		Status string          `json:"status"`
		Error  json.RawMessage `json:"error"`
	}](ctx, a.Client, rest.Call{Method: "GET", Path: path, Reply: &reply})
	if err != nil {
		return false, err
	}
	op.after = reply.RetryAfter()
	switch {
	case !op.async:
		return reply.Status != http.StatusAccepted, nil
	case said.Status == "Succeeded":
		return true, nil
	case said.Status == "Failed" || said.Status == "Canceled":
		var e *rest.Error
		body, _ := json.Marshal(map[string]json.RawMessage{"error": said.Error})
		if !errors.As(readError(http.StatusBadRequest, nil, body), &e) {
			e = &rest.Error{Status: http.StatusBadRequest, Message: "the operation ended as " + said.Status}
		}
		return true, e
	}
	return false, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// refusal reads an error. A token that was not accepted is not used again.
func (l *login) refusal(status int, header http.Header, body []byte) error {
	if status == http.StatusUnauthorized {
		l.cred.Forget(l.scope())
	}
	return readError(status, header, body)
}

// readError reads the error of Azure Resource Manager. Codes that say little have others
// in their details that say more.
//
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/find-error-code
func readError(status int, header http.Header, body []byte) error {
	err := rest.ReadError(status, header, body)
	var e *rest.Error
	if !errors.As(err, &e) {
		return err
	}
	var said struct {
		Error words `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return err
	}
	if status == http.StatusTooManyRequests && !busy[e.Code] {
		e.Message = strings.TrimPrefix(e.Code+": "+e.Message, ": ")
		e.Code = throttled
		return e
	}
	if said.Error.Code == e.Code {
		reason := said.Error.reason()
		e.Code, e.Message = reason.Code, reason.Message
	}
	return e
}

// words are an error with those that it came from.
type words struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Details []words `json:"details"`
}

// reason is the error that says most: the outermost with a meaning of its own, else the
// innermost of the first ones whose code is known.
func (w words) reason() words {
	best, inner := w, false
	for _, d := range w.Details {
		if best.says() == exact {
			break
		}
		r := d.reason()
		if r.Code != "" && (r.says() > best.says() || r.says() == best.says() && !inner) {
			best, inner = r, true
		}
	}
	return best
}

// How much a code says.
const (
	unknown = iota
	vague
	exact
)

func (w words) says() int {
	if _, ok := refusals.Codes[w.Code]; ok {
		return exact
	}
	if _, ok := refusals.Vague[w.Code]; ok {
		return vague
	}
	return unknown
}

// groupPath is that of a resource group.
func (a *account) groupPath(name string) string {
	return "/subscriptions/" + a.subscription + "/resourceGroups/" + url.PathEscape(name)
}

// The types of resources, as they stand in paths.
const (
	machines       = "Microsoft.Compute/virtualMachines"
	disks          = "Microsoft.Compute/disks"
	snapshots      = "Microsoft.Compute/snapshots"
	interfaces     = "Microsoft.Network/networkInterfaces"
	addresses      = "Microsoft.Network/publicIPAddresses"
	networks       = "Microsoft.Network/virtualNetworks"
	securityGroups = "Microsoft.Network/networkSecurityGroups"
	placements     = "Microsoft.Compute/proximityPlacementGroups"
	identities     = "Microsoft.ManagedIdentity/userAssignedIdentities"

	reservationGroups = "Microsoft.Compute/capacityReservationGroups"
)

// in is the path of a resource, or of all of a type, in a group or a subscription.
func in(scope, kind string, name ...string) string {
	path := scope + "/providers/" + kind
	for _, n := range name {
		path += "/" + url.PathEscape(n)
	}
	return path
}

// groupOf is the resource group in a resource's id, whose case is not to be relied on.
func groupOf(id string) string {
	parts := strings.Split(id, "/")
	for i, p := range parts {
		if strings.EqualFold(p, "resourceGroups") && i+1 < len(parts) {
			return parts[i+1]
		}
	}
	return ""
}

// filter is for lists of what carries a cluster's tags: those of its incarnation, else of
// its name, else of the installation.
func filter(id cloud.ClusterID) []string {
	tags := id.Tags()
	for _, key := range []string{cloud.TagHash, cloud.TagCluster, cloud.TagInstallation} {
		if v, ok := tags[key]; ok {
			return []string{"$filter", fmt.Sprintf("tagName eq '%s' and tagValue eq '%s'", key, strings.ReplaceAll(v, "'", "''"))}
		}
	}
	return []string{"$filter", fmt.Sprintf("tagName eq '%s'", cloud.TagInstallation)}
}
