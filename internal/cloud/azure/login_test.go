package azure_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/azureauth"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/azure"
	"github.com/skypilot-go/sky/internal/cloud/azure/azurefake"
)

// Every kind of credentials opens the subscription, and says whose it is.
func TestEveryLogin(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pemFile := write("sp.pem", string(certificate)+string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	write("user/.azure/azureProfile.json", `{"subscriptions":[{"id":"`+azurefake.Subscription+`","isDefault":true,"tenantId":"`+azurefake.Tenant+`","environmentName":"AzureCloud","user":{"name":"`+azurefake.User+`","type":"user"}}]}`)
	write("user/.azure/msal_token_cache.json", `{"Account":{"a":{"home_account_id":"h","username":"`+azurefake.User+`"}},"RefreshToken":{"r":{"home_account_id":"h","client_id":"`+azurefake.CLI+`","secret":"`+azurefake.RefreshToken+`"}}}`)
	app := func(more ...string) map[string]string {
		env := map[string]string{"AZURE_TENANT_ID": azurefake.Tenant, "AZURE_CLIENT_ID": azurefake.Client, "AZURE_SUBSCRIPTION_ID": azurefake.Subscription}
		for i := 0; i < len(more); i += 2 {
			env[more[i]] = more[i+1]
		}
		return env
	}
	for _, tt := range []struct {
		name, home string
		env        map[string]string
		who        string
	}{
		{"a secret", "none", app("AZURE_CLIENT_SECRET", azurefake.Secret), azurefake.Client},
		{"a certificate", "none", app("AZURE_CLIENT_CERTIFICATE_PATH", pemFile), azurefake.Client},
		{"a workload", "none", app("AZURE_FEDERATED_TOKEN_FILE", write("token", "outer")), azurefake.Client},
		{"az login", "user", nil, azurefake.User},
		{"a machine", "none", map[string]string{"ON": "1"}, azurefake.ManagedID},
	} {
		fake := azurefake.New()
		fake.Federate("outer")
		if err := fake.SetCertificate(certificate); err != nil {
			t.Fatal(err)
		}
		tuning := quick
		tuning.Transport = fake
		p := azure.New(azure.Options{Tuning: tuning, Auth: azureauth.Options{
			Home: filepath.Join(folder, tt.home), Getenv: func(name string) string { return tt.env[name] }, OnAzure: func() bool { return tt.env["ON"] != "" },
		}})
		who, err := p.Check(t.Context())
		if want := tt.who + " [subscription_id=" + azurefake.Subscription + "]"; err != nil || who[0] != want {
			t.Errorf("%s: %v, %v, want %s", tt.name, who, err, want)
		}
		fake.Revoke()
		_, err = p.Check(t.Context()) // the token that is kept is not accepted, and forgotten
		var auth *cloud.AuthError
		if !errors.As(err, &auth) {
			t.Errorf("%s: with a token that was revoked: %v", tt.name, err)
		}
		if _, err = p.Check(t.Context()); (err == nil) != (tt.home != "user") {
			t.Errorf("%s: with a new token: %v", tt.name, err)
		}
	}
}

func TestWhatACheckFinds(t *testing.T) {
	fake, provider := start(t, nil)
	p := provider(quick)
	fake.State("Disabled")
	var auth *cloud.AuthError
	if _, err := p.Check(t.Context()); !errors.As(err, &auth) || !strings.Contains(err.Error(), "is disabled") || !strings.Contains(auth.Fix, "enable the subscription") {
		t.Error(err)
	}
	fake.Restore()
	if lack, err := p.Lacking(t.Context()); err != nil || len(lack.Permissions) > 0 {
		t.Errorf("nothing is missing: %v, %v", lack, err)
	}
	fake.Deny("Microsoft.Compute/virtualMachines/write", "Microsoft.Authorization/roleAssignments/write")
	fake.Unregister("Microsoft.Network")
	lack, err := p.Lacking(t.Context())
	want := []string{"Microsoft.Authorization/roleAssignments/write", "Microsoft.Compute/virtualMachines/write", "the registration of Microsoft.Network (NotRegistered)"}
	if err != nil || !slices.Equal(lack.Permissions, want) || !strings.Contains(lack.Fix, "az provider register --namespace Microsoft.Network") {
		t.Errorf("%v, %+v", err, lack)
	}
}

// Quotas and sizes that are closed are found before anything is made.
func TestNothingIsMadeForWhatCannotFit(t *testing.T) {
	for name, prepare := range map[string]func(*azurefake.Fake){
		"a quota of the family": func(f *azurefake.Fake) {
			if err := f.LimitQuota("eastus", "standardDSv5Family", 7); err != nil {
				t.Fatal(err)
			}
		},
		"a quota of the region": func(f *azurefake.Fake) { f.Cores("eastus", 7) },
		"a size that is closed": func(f *azurefake.Fake) { f.Restrict("eastus", here.InstanceType) },
	} {
		fake, provider := start(t, nil)
		prepare(fake)
		err := provider(quick).Prepare(t.Context(), launchSpec(2, "t"))
		var quota *cloud.QuotaError
		var full *cloud.CapacityError
		if !errors.As(err, &quota) && !errors.As(err, &full) {
			t.Errorf("%s: %v", name, err)
		}
		nothing(t, fake, name)
	}
}

// Credentials that may not grant roles say what else can be done.
func TestMachinesNeedAnIdentity(t *testing.T) {
	synctest.Test(t, machinesNeedAnIdentity)
}

func machinesNeedAnIdentity(t *testing.T) {
	fake, provider := start(t, nil)
	fake.Deny("Microsoft.Authorization/roleAssignments/write")
	p := provider(quick)
	err := p.Prepare(t.Context(), launchSpec(1, "t"))
	var forbidden *cloud.PermissionError
	if !errors.As(err, &forbidden) || !strings.Contains(err.Error(), "azure.remote_identity") || !strings.Contains(err.Error(), "NO_UPLOAD") {
		t.Error(err)
	}
	spec := launchSpec(1, "t")
	spec.Settings = map[string]any{"remote_identity": "NO_UPLOAD"}
	nodes, err := try(t.Context(), p, spec)
	if err != nil || nodes[0].Reach.Machine != "" {
		t.Errorf("a machine without an identity: %v, %v", nodes, err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	nothing(t, fake, "without an identity")
}
