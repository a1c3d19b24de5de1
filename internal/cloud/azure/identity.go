package azure

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// contributor is the id of the built-in role Contributor.
//
// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
const contributor = "b24988ac-6180-42a0-ab88-20f7382dd24c"

type identity struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Properties struct {
		Principal string `json:"principalId"`
	} `json:"properties"`
}

// identity is the id of the identity that machines of a cluster have: one that may give
// back what is in their resource group, and that is made if it is to be, unless the user
// names another or wants none.
func (d driver) identity(ctx context.Context, a *account, spec cloud.LaunchSpec, group string, make bool) (string, error) {
	s := d.settings(spec)
	switch v := s.identity(spec.ID.Name); strings.ToUpper(v) {
	case "", "LOCAL_CREDENTIALS", "SERVICE_ACCOUNT":
	case "NO_UPLOAD":
		return "", nil
	default:
		return d.usersIdentity(ctx, a, spec.Offer.Place, v)
	}
	path := in(a.groupPath(group), identities, shared(spec.ID, group, "msi"))
	if !make {
		return path, nil
	}
	have, err := rest.Send[identity](ctx, a.Client, rest.Call{Method: "PUT", Path: path, Query: with(apiIdentity, nil), Body: map[string]any{
		"location": spec.Offer.Region, "tags": s.tags(spec, -1),
	}})
	if err != nil {
		return "", err
	}
	return path, d.grant(ctx, a, spec, group, have.Properties.Principal)
}

// usersIdentity is one of the user's, by its id or its name.
func (d driver) usersIdentity(ctx context.Context, a *account, at cloud.Place, name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return name, nil
	}
	all, err := list[identity](ctx, a, in("/subscriptions/"+a.subscription, identities), apiIdentity)
	if err != nil {
		return "", err
	}
	var found []string
	for _, i := range all {
		if strings.EqualFold(i.Name, name) {
			found = append(found, i.ID)
		}
	}
	if len(found) != 1 {
		return "", &cloud.InvalidError{Place: cloud.Place{Cloud: at.Cloud}, Err: fmt.Errorf("the subscription has %d managed identities %q (azure.remote_identity); give the id of one", len(found), name)}
	}
	return found[0], nil
}

// grantPath is the role assignment of a cluster's identity. Its name is a GUID that
// follows from the cluster, so that it is made once.
func (a *account) grantPath(id cloud.ClusterID, group string) string {
	h := sha256.Sum256([]byte(strings.Join([]string{a.subscription, group, id.Installation, id.Name, id.Hash}, "\x00")))
	return a.groupPath(group) + fmt.Sprintf("/providers/Microsoft.Authorization/roleAssignments/%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// principalKnown is how long a new identity may be unknown to those who keep roles.
const principalKnown = 2 * time.Minute

// grant lets the identity do what it likes in the resource group.
func (d driver) grant(ctx context.Context, a *account, spec cloud.LaunchSpec, group, principal string) error {
	path := a.grantPath(spec.ID, group)
	body := map[string]any{"properties": map[string]string{
		"principalId": principal, "principalType": "ServicePrincipal",
		"roleDefinitionId": "/subscriptions/" + a.subscription + "/providers/Microsoft.Authorization/roleDefinitions/" + contributor,
	}}
	for began := time.Now(); ; {
		_, err := a.change(ctx, "PUT", path, apiAuthorization, body)
		var refused *rest.Error
		errors.As(err, &refused)
		switch {
		case err == nil || refused != nil && refused.Code == "RoleAssignmentExists":
			return nil
		case refused != nil && refused.Code == "PrincipalNotFound" && time.Since(began) < principalKnown:
			if err := pause(ctx, 5*time.Second); err != nil {
				return err
			}
		case refused != nil && refused.Code == "AuthorizationFailed":
			return &cloud.PermissionError{Place: cloud.Place{Cloud: Name}, Err: fmt.Errorf("machines need an identity by which they can stop themselves, and these credentials may not grant it a role "+
				"(Microsoft.Authorization/roleAssignments/write, which the role Role Based Access Control Administrator has); or name one in azure.remote_identity, or NO_UPLOAD for machines that cannot stop themselves: %w", err)}
		default:
			return err
		}
	}
}

// dropRole removes the role of a cluster's identity in a group that stays.
func (d driver) dropRole(ctx context.Context, a *account, id cloud.ClusterID, group string) error {
	_, err := a.change(ctx, "DELETE", a.grantPath(id, group), apiAuthorization, nil)
	return err
}

// tagEnds says what becomes of a machine that switches itself off: "true", it is removed.
const tagEnds = "sky-ends-when-off"

//go:embed off.sh
var offScript string

// customData is what a machine does when it boots for the first time: it keeps updates
// from using its disk while work does, and sees to it that a machine that is switched off
// from inside gives its place back, as it costs money otherwise. alone says that the
// resource group is the cluster's.
func customData(identity string, alone bool) string {
	var b strings.Builder
	b.WriteString("#cloud-config\nbootcmd:\n" + vm.BootCommand())
	if identity == "" {
		return b.String()
	}
	script := strings.NewReplacer("@IDENTITY@", identity, "@ALONE@", fmt.Sprint(alone), "@COMPUTE@", apiCompute, "@RESOURCES@", apiResources).Replace(offScript)
	b.WriteString("write_files:\n- path: /usr/local/sbin/sky-off\n  permissions: '0755'\n  content: |\n")
	for line := range strings.Lines(script) {
		b.WriteString("    " + line)
	}
	b.WriteString("- path: /etc/systemd/system/sky-off.service\n  content: |\n")
	for line := range strings.Lines(offUnit) {
		b.WriteString("    " + line)
	}
	b.WriteString("runcmd:\n- systemctl daemon-reload\n- systemctl enable --now sky-off.service\n")
	return b.String()
}

// offUnit runs the script while the network is still there.
const offUnit = `[Unit]
Description=Give this machine back to Azure when it is switched off
Wants=network-online.target
After=network-online.target nss-lookup.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/usr/local/sbin/sky-off
TimeoutStopSec=90
[Install]
WantedBy=multi-user.target
`
