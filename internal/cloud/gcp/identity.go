package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// accountID is the service account that machines have. It stays when clusters go: it is
// the project's.
const accountID = "skypilot-v1"

// roles are what it may do.
var roles = []string{"roles/storage.admin", "roles/compute.admin", "roles/iam.serviceAccountUser", "roles/iam.roleViewer", "roles/tpu.admin"}

// serviceAccount is the address of the machines' account; "": they have none.
func serviceAccount(a *account, s Settings) string {
	if s.NoIdentity {
		return ""
	}
	domain := a.project + ".iam.gserviceaccount.com"
	if of, name, ok := strings.Cut(a.project, ":"); ok { // a project of a domain: "example.com:name"
		domain = name + "." + of + ".iam.gserviceaccount.com"
	}
	return accountID + "@" + domain
}

// readiness is what was found to be as it should be, and is not looked at again.
type readiness struct {
	making   chan struct{} // is held while the service account is made
	identity bool
	mu       sync.Mutex // guards the rest
	entered  bool       // the API of TPUs has let us in
	shut     time.Time  // when it did not
}

// ensureIdentity makes the service account, and gives it its roles, whatever is missing.
func (d driver) ensureIdentity(ctx context.Context, a *account, s Settings) error {
	email := serviceAccount(a, s)
	if email == "" {
		return nil
	}
	select {
	case a.ready.making <- struct{}{}:
		defer func() { <-a.ready.making }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if a.ready.identity {
		return nil
	}
	path := a.on("/serviceAccounts")
	found, err := rest.Do[struct {
		Disabled bool `json:"disabled"`
	}](ctx, a.iam, "GET", path+"/"+url.PathEscape(email), nil)
	fresh := missing(err)
	switch {
	case fresh:
		err = cloud.Settled(ctx, func(ctx context.Context) error {
			_, err := rest.Do[any](ctx, a.iam, "POST", path, map[string]any{
				"accountId": accountID, "serviceAccount": map[string]any{"displayName": "Machines of sky", "description": "Made by sky"},
			})
			return err
		})
		if exists(err) { // somebody was quicker
			err = nil
		}
	case err == nil && found.Disabled:
		err = &cloud.InvalidError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("the service account %s is disabled; switch it on with: gcloud iam service-accounts enable %s --project %s", email, email, a.project)}
	}
	if err != nil {
		return err
	}
	// An account that was made a moment ago is not known everywhere.
	err = d.persist(ctx, func() (bool, error) {
		err := a.grant(ctx, "serviceAccount:"+email)
		r, ok := errors.AsType[*refusal](err)
		again := ok && (r.Status == 409 || r.Status == 400 && strings.Contains(r.Message, "does not exist"))
		return !again, err
	})
	if err != nil {
		return err
	}
	a.ready.identity = true
	if !fresh {
		return nil
	}
	cloud.ReportWait(ctx, "Google Cloud to learn of the service account "+accountID+", which is new")
	select {
	case <-time.After(min(accountSettles, 5*d.o.Poll)):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for Google Cloud to learn of the service account %s: %w", email, context.Cause(ctx))
	}
}

// accountSettles is how long Compute Engine may not know a service account that was just
// made.
const accountSettles = 15 * time.Second

// grant gives a member the roles that it lacks. All that the policy has besides is left
// as it is, and what somebody changed meanwhile is refused.
//
// https://cloud.google.com/iam/docs/granting-changing-revoking-access#multiple-roles-programmatic
func (a *account) grant(ctx context.Context, member string) error {
	policy, err := rest.Do[map[string]any](ctx, a.manager, "POST", a.on(":getIamPolicy"), map[string]any{"options": map[string]any{"requestedPolicyVersion": 3}})
	if err != nil {
		return err
	}
	bindings, _ := policy["bindings"].([]any)
	changed := false
	for _, role := range roles {
		i := slices.IndexFunc(bindings, func(b any) bool {
			m, _ := b.(map[string]any)
			return m["role"] == role && m["condition"] == nil
		})
		if i < 0 {
			bindings = append(bindings, map[string]any{"role": role, "members": []any{member}})
			changed = true
			continue
		}
		b := bindings[i].(map[string]any)
		members, _ := b["members"].([]any)
		if !slices.Contains(members, any(member)) {
			b["members"] = append(members, member)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	policy["bindings"] = bindings
	_, err = rest.Do[any](ctx, a.manager, "POST", a.on(":setIamPolicy"), map[string]any{"policy": policy})
	return err
}
