package azureauth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	kindCLI = "az login"
	cliID   = "04b07795-8ddb-461a-bbee-02f9e1bf7b46" // the Azure CLI's, whose refresh tokens these are
	// family is the id of Microsoft's own clients, which share refresh tokens.
	family = "1"

	profileFile   = "azureProfile.json"
	tokenFile     = "msal_token_cache"
	principalFile = "service_principal_entries"
)

// profile is what the Azure CLI knows of the user's subscriptions.
type profile struct {
	Subscriptions []subscription `json:"subscriptions"`
}

type subscription struct {
	ID      string `json:"id"`
	Default bool   `json:"isDefault"`
	Tenant  string `json:"tenantId"`
	Cloud   string `json:"environmentName"`
	User    struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Assigned string `json:"assignedIdentityInfo"`
	} `json:"user"`
}

// fromCLI is whoever logged in with the Azure CLI, in the subscription that
// AZURE_SUBSCRIPTION_ID names or that was chosen with "az account set".
func fromCLI(o Options) (*Credentials, error) {
	dir := cmp.Or(o.Getenv("AZURE_CONFIG_DIR"), filepath.Join(o.Home, ".azure"))
	var p profile
	if ok, err := readJSON(filepath.Join(dir, profileFile), &p); err != nil || !ok || len(p.Subscriptions) == 0 {
		return nil, err
	}
	wanted := o.Getenv("AZURE_SUBSCRIPTION_ID")
	i := slices.IndexFunc(p.Subscriptions, func(s subscription) bool { return strings.EqualFold(s.ID, wanted) })
	if i < 0 {
		i = max(0, slices.IndexFunc(p.Subscriptions, func(s subscription) bool { return s.Default }))
	}
	s := p.Subscriptions[i]
	switch {
	case s.User.Type == "servicePrincipal" && (s.User.Name == "systemAssignedIdentity" || s.User.Name == "userAssignedIdentity"):
		kind, value, _ := strings.Cut(s.User.Assigned, "-") // MSI, MSIClient-ID, MSIObject-ID, MSIResource-ID
		c := o.fromMetadata(map[string]string{"MSIClient": "client_id", "MSIObject": "object_id", "MSIResource": "msi_res_id"}[kind], value)
		c.in(s, wanted)
		return c, nil
	case s.User.Type == "servicePrincipal":
		c := &Credentials{Kind: "service principal", Account: s.User.Name, o: o}
		c.in(s, wanted)
		return c, c.storedPrincipal(dir)
	}
	c := &Credentials{Kind: kindCLI, Account: s.User.Name, o: o}
	c.in(s, wanted)
	return c, c.storedUser(dir)
}

// in notes the subscription. One whose id is its tenant's is what the Azure CLI has for
// those who have none.
func (c *Credentials) in(s subscription, wanted string) {
	c.Tenant, c.Cloud, c.Subscription = s.Tenant, c.o.cloud(s.Cloud), cmp.Or(wanted, s.ID)
	if c.Subscription == s.Tenant {
		c.Subscription = ""
	}
}

// storedUser takes the refresh token of a user.
func (c *Credentials) storedUser(dir string) error {
	type entry struct {
		Home     string `json:"home_account_id"`
		Username string `json:"username"`
		Client   string `json:"client_id"`
		Family   string `json:"family_id"`
		Secret   string `json:"secret"`
	}
	var cache struct {
		Account      map[string]entry
		RefreshToken map[string]entry
	}
	path := filepath.Join(dir, tokenFile)
	ok, err := readJSON(path+".json", &cache)
	if err != nil {
		return err
	}
	if !ok {
		return c.sealedUser(path)
	}
	var token string
	for _, a := range cache.Account {
		for _, r := range cache.RefreshToken {
			if strings.EqualFold(a.Username, c.Account) && r.Home == a.Home && (r.Client == cliID || r.Family == family) && (token == "" || r.Client == cliID) {
				token = r.Secret
			}
		}
	}
	if token == "" {
		return fmt.Errorf("az login has left no refresh token for %s", c.Account)
	}
	c.secret = token
	c.ask = func(ctx context.Context, scope string) (Token, error) {
		return c.grant(ctx, scope, map[string]string{"client_id": cliID, "grant_type": "refresh_token", "refresh_token": token})
	}
	c.files = func() (map[string][]byte, error) { return carried(dir) }
	return nil
}

// sealedUser asks the Azure CLI for tokens, where that has encrypted them: the signs are
// a file of Windows, or one that says when the key ring of another system was written.
func (c *Credentials) sealedUser(path string) error {
	var sealed []byte
	for _, sign := range []string{".bin", ".sig"} {
		if text, err := os.ReadFile(path + sign); err == nil {
			sealed = append(text, sign...)
		}
	}
	if sealed == nil {
		return errors.New("az login has chosen a subscription and left no tokens (msal_token_cache.json)")
	}
	az, err := exec.LookPath("az")
	if err != nil {
		return &MissingError{Fix: "run: az config set core.encrypt_token_cache=false && az account clear && az login  (or set the variables of a service principal)",
			Err: errors.New("the tokens of az login are encrypted, so that only az can read them, and az is not on the PATH")}
	}
	c.secret = string(sealed)
	c.ask = func(ctx context.Context, scope string) (Token, error) {
		out, err := exec.CommandContext(ctx, az, "account", "get-access-token", "--scope", scope, "--tenant", c.Tenant, "--output", "json").Output()
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return Token{}, &RefusedError{Code: "az account get-access-token", Message: strings.TrimSpace(string(failed.Stderr)), Fix: c.fix("")}
		}
		var said struct {
			Token   string `json:"accessToken"`
			Expires int64  `json:"expires_on"`
		}
		if err == nil {
			err = json.Unmarshal(out, &said)
		}
		if err != nil {
			return Token{}, fmt.Errorf("az account get-access-token: %w", err)
		}
		return Token{said.Token, time.Unix(said.Expires, 0)}, nil
	}
	return nil
}

// storedPrincipal takes the secret or the certificate of a service principal that logged
// in with the Azure CLI.
func (c *Credentials) storedPrincipal(dir string) error {
	var all []principal
	path := filepath.Join(dir, principalFile)
	ok, err := readJSON(path+".json", &all)
	if err != nil {
		return err
	}
	if !ok {
		return &MissingError{Fix: "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run: az config set core.encrypt_token_cache=false  and log in with az again",
			Err: fmt.Errorf("%s.json is not there: the secret of the service principal is encrypted, or gone", path)}
	}
	for _, p := range all {
		if !strings.EqualFold(p.Client, c.Account) || !strings.EqualFold(p.Tenant, c.Tenant) {
			continue
		}
		switch {
		case p.Secret != "":
			c.bySecret(p.Secret)
			return nil
		case p.Certificate != "":
			return c.byCertificate(p.Certificate, "", p.Chain != nil && p.Chain != false)
		}
	}
	return fmt.Errorf("az login has left no secret for the service principal %s", c.Account)
}

type principal struct {
	Tenant      string `json:"tenant"`
	Client      string `json:"client_id"`
	Secret      string `json:"client_secret,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Chain       any    `json:"use_cert_sn_issuer,omitempty"`
}

// readJSON reads a file; false: there is none. The Azure CLI begins some with a mark of
// their byte order.
func readJSON(path string, into any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), into)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// carried are the files of a login.
func carried(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{profileFile, tokenFile + ".json", "config", "clouds.config"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[".azure/"+name] = text
	}
	return files, nil
}

// carriedPrincipal are the files that the Azure CLI would have of a service principal.
func carriedPrincipal(c *Credentials, secret string) (map[string][]byte, error) {
	s := subscription{ID: cmp.Or(c.Subscription, c.Tenant), Default: true, Tenant: c.Tenant}
	s.User.Name, s.User.Type = c.Account, "servicePrincipal"
	for name, in := range clouds {
		if in.Manager == c.Cloud.Manager {
			s.Cloud = name
		}
	}
	chosen, err := json.Marshal(profile{[]subscription{s}})
	if err != nil {
		return nil, err
	}
	entries, err := json.Marshal([]principal{{Tenant: c.Tenant, Client: c.Account, Secret: secret}})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{".azure/" + profileFile: chosen, ".azure/" + principalFile + ".json": entries}, nil
}
