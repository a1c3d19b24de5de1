//go:build e2e && linux

package e2e

import (
	"fmt"
	"regexp"

	"github.com/skypilot-go/sky/internal/cloud/vsphere/vspherefake"
	"github.com/skypilot-go/sky/test/harness"
)

// vcenter is VMware's simulator to the machines that its VMs are.
type vcenter struct {
	*vspherefake.Fake
	rack *harness.Rack
}

var inUserData = regexp.MustCompile(`"ssh_authorized_keys":\["([^"]+)"\]`)

func (v vcenter) Rented() (all []harness.Rented, err error) {
	for _, m := range v.Machines() {
		key := inUserData.FindStringSubmatch(m.UserData)
		if key == nil {
			return all, fmt.Errorf("no key in the user data of %s:\n%s", m.Name, m.UserData)
		}
		all = append(all, harness.Rented{ID: m.Name, Address: v.rack.Address(m.Name), Port: 22, State: m.State, User: "ubuntu", Keys: key[1:]})
	}
	return all, nil
}
