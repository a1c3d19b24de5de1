package vcenter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/keyfile"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Name and DisplayName are those of the cloud that vCenters are: as users write it, and for
// people.
const Name, DisplayName = "vsphere", "vSphere"

// Path of the credentials, below the home folder.
const Path = ".vsphere/credential.yaml"

// account is a vCenter in the file of credentials.
type account struct {
	Name     string                  `json:"name"`
	User     string                  `json:"username"`
	Password string                  `json:"password"`
	Skip     bool                    `json:"skip_verification"`
	Clusters []struct{ Name string } `json:"clusters"` // none: all
}

// Credentials is the file of accounts in a home folder; "": the user's.
func Credentials(home string) keyfile.File {
	return keyfile.File{
		Cloud: Name, Path: Path, Format: keyfile.Text, Home: home, Names: []string{"vcenters"},
		Fix: "write the vCenters and a user of each into ~/" + Path + ":\n      vcenters:\n      - name: vcenter.example.com\n        username: sky@vsphere.local\n        password: …",
	}
}

// Accounts reads the file, which has an account at least, and says what tells its contents
// apart from others.
func Accounts(from keyfile.File) (all []account, stamp string, err error) {
	keys, err := from.Read()
	if err != nil {
		return nil, "", err
	}
	var file struct{ Vcenters []account }
	err = (&yaml11.Source{Text: keys["vcenters"]}).Unmarshal(&file)
	switch {
	case err != nil: // which may quote a secret
		err = errors.New("it is not the YAML that it should be")
	case len(file.Vcenters) == 0:
		err = errors.New("it has no vcenters")
	case slices.ContainsFunc(file.Vcenters, func(a account) bool { return a.Name == "" || a.User == "" || a.Password == "" }):
		err = errors.New("a vCenter lacks its name, username or password")
	}
	if err != nil {
		return nil, "", &cloud.AuthError{Cloud: Name, Fix: from.Fix, Err: fmt.Errorf("~/%s: %w", Path, err)}
	}
	return file.Vcenters, from.Stamp(keys), nil
}

// New is the client of a vCenter. It does no I/O.
func New(a account, o rest.Options) *VCenter {
	o.Cloud, o.Endpoint, o.Refusal, o.Unverified, o.Timeout = "vCenter "+a.Name, cmp.Or(o.Endpoint, "https://"+a.Name), ReadFault, a.Skip, time.Minute
	return &VCenter{account: a, turn: make(chan struct{}, 1), api: rest.New(o)}
}
