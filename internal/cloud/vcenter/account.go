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
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Name and DisplayName are those of the cloud that vCenters are: as users write it, and for
// people.
const Name, DisplayName = "vsphere", "vSphere"

// Path of the credentials, below the home folder.
const Path = ".vsphere/credential.yaml"

// account is a vCenter in the file of credentials.
type account struct {
	Name, User, Password string
	Skip                 bool     // the certificate is not verified
	Clusters             []string // none: all
}

// file is what the file of credentials may hold; other programs have keys of their own in it.
func file() *schema.Spec {
	name := schema.New("name", schema.Written(""))
	vcenter := schema.Section("", name, schema.New("username", schema.Written("")), schema.New("password", schema.Written("")),
		schema.New("skip_verification", schema.YesNo("", false).Or(schema.NullKind)),
		schema.New("clusters", schema.List("", schema.Section("", name).Opened()).Or(schema.NullKind)))
	return schema.Section("", schema.New("vcenters", schema.List("", vcenter.Opened()).Or(schema.NullKind))).Opened()
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
	all, err = read(keys["vcenters"])
	switch {
	case err != nil: // which may quote a secret
		err = errors.New("it is not the YAML that it should be")
	case len(all) == 0:
		err = errors.New("it has no vcenters")
	case slices.ContainsFunc(all, func(a account) bool { return a.Name == "" || a.User == "" || a.Password == "" }):
		err = errors.New("a vCenter lacks its name, username or password")
	}
	if err != nil {
		return nil, "", &cloud.AuthError{Cloud: Name, Fix: from.Fix, Err: fmt.Errorf("~/%s: %w", Path, err)}
	}
	return all, from.Stamp(keys), nil
}

func read(text string) (all []account, err error) {
	n, err := (&yaml11.Source{Text: text}).ReadOne()
	if err != nil || n == nil {
		return nil, err
	}
	if err := file().Validate(n); err != nil {
		return nil, err
	}
	for _, v := range n.List("vcenters") {
		a := account{Name: v.TextAt("name"), User: v.TextAt("username"), Password: v.TextAt("password"), Skip: v.Lookup("skip_verification").IsTrue()}
		for _, c := range v.List("clusters") {
			a.Clusters = append(a.Clusters, c.TextAt("name"))
		}
		all = append(all, a)
	}
	return all, nil
}

// New is the client of a vCenter. It does no I/O.
func New(a account, o rest.Options) *VCenter {
	o.Cloud, o.Endpoint, o.Refusal, o.Unverified, o.Timeout = "vCenter "+a.Name, cmp.Or(o.Endpoint, "https://"+a.Name), ReadFault, a.Skip, time.Minute
	return &VCenter{account: a, turn: make(chan struct{}, 1), api: rest.New(o)}
}
