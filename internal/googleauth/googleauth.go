// Package googleauth finds the credentials of Google Cloud as its own tools do, without
// any of them being installed: the file that GOOGLE_APPLICATION_CREDENTIALS names, else
// gcloud's, else the service account of the machine. Files hold a user's login, the key
// of a service account, a federated workload identity, or the impersonation of a service
// account by one of these.
package googleauth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// Fix is the command that makes credentials.
const Fix = "gcloud auth application-default login  (or set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account's key)"

// Scope lets credentials do all that their account may do.
const Scope = "https://www.googleapis.com/auth/cloud-platform"

// ErrNone means that there are no credentials on this machine.
var ErrNone = errors.New("there are no credentials on this machine")

// Kinds of credentials.
const (
	User         = "authorized_user"
	KeyOfAccount = "service_account"
	Federated    = "external_account"
	FederatedHub = "external_account_authorized_user"
	Impersonated = "impersonated_service_account"
	Machine      = "machine" // the service account of the machine that this runs on
)

// Credentials are what was found.
type Credentials struct {
	source  oauth2.TokenSource
	turn    chan struct{} // is held while a token is asked for
	Kind    string
	Project string // that the credentials name; "": none
	// QuotaProject is the project that calls of a user's credentials count for, where
	// they do not count for the project that they are about.
	QuotaProject string
	Email        string // of the service account; "": they are a user's, or do not tell
	Path         string // of the file; "": there is none
	JSON         []byte // the file
}

// file is what the files have that this package reads itself.
type file struct {
	Type             string `json:"type"`
	Email            string `json:"client_email"`
	Project          string `json:"project_id"`
	QuotaProject     string `json:"quota_project_id"`
	Impersonates     string `json:"service_account_impersonation_url"`
	Audience         string `json:"audience"`
	CredentialSource struct {
		File       string           `json:"file"`
		Executable *json.RawMessage `json:"executable"`
		URL        string           `json:"url"`
		Env        string           `json:"environment_id"`
	} `json:"credential_source"`
}

// Path is the file that holds credentials; "": there is none. One that is named and
// missing is returned all the same.
func Path() string {
	if named := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); named != "" {
		return named
	}
	for _, dir := range []string{os.Getenv("CLOUDSDK_CONFIG"), configDir()} {
		path := filepath.Join(dir, "application_default_credentials.json")
		if _, err := os.Stat(path); dir != "" && err == nil {
			return path
		}
	}
	return ""
}

// configDir is where gcloud keeps its files.
func configDir() string {
	if runtime.GOOS == "windows" {
		return filepath.Join(os.Getenv("APPDATA"), "gcloud")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "gcloud")
}

// onGoogle reports whether this machine is one of Google's, without asking anybody.
func onGoogle() bool {
	if os.Getenv("GCE_METADATA_HOST") != "" {
		return true
	}
	name, err := os.ReadFile("/sys/class/dmi/id/product_name")
	return err == nil && strings.HasPrefix(string(name), "Google")
}

// Stamp changes when the credentials do.
func Stamp() string {
	path := Path()
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", path, os.Getenv("GCE_METADATA_HOST"))
	if text, err := os.ReadFile(path); err == nil {
		h.Write(text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// Find reads the credentials. Tokens are asked for through the transport (nil: the
// usual one) for as long as the source is used. Without any it returns ErrNone and has
// done no I/O beyond looking at files.
func Find(ctx context.Context, transport http.RoundTripper, scopes ...string) (*Credentials, error) {
	path := Path()
	if path == "" {
		if !onGoogle() {
			return nil, ErrNone
		}
		c := &Credentials{Kind: Machine, source: google.ComputeTokenSource("", scopes...), turn: make(chan struct{}, 1)}
		var err error
		if c.Project, err = metadata.ProjectID(); err != nil {
			return nil, fmt.Errorf("asking the metadata service of this machine: %w", err)
		}
		if c.Email, err = metadata.Email("default"); err != nil {
			return nil, fmt.Errorf("this machine has no service account, or does not tell: %w", err)
		}
		c.Email = strings.TrimSpace(c.Email)
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s is no file of credentials: %w", path, err)
	}
	// The source of tokens outlives this call.
	ctx = context.WithoutCancel(ctx)
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport, Timeout: tokenTimeout})
	found, err := google.CredentialsFromJSON(ctx, text, scopes...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Type == "" { // such as the file of an OAuth client, which is nobody's login
		return nil, fmt.Errorf("%s holds no credentials that can be used: its type is %q", path, f.Type)
	}
	c := &Credentials{Kind: f.Type, source: found.TokenSource, turn: make(chan struct{}, 1), Project: f.Project, QuotaProject: f.QuotaProject, Email: f.Email, Path: path, JSON: text}
	if _, account, ok := strings.Cut(f.Impersonates, "/serviceAccounts/"); ok {
		c.Email, _, _ = strings.Cut(account, ":")
	}
	if c.Email == "" && f.Type == Federated {
		c.Email = f.Audience
	}
	return c, nil
}

// tokenTimeout bounds a call for a token.
const tokenTimeout = 30 * time.Second

// Token is one that is good now.
func (c *Credentials) Token(ctx context.Context) (*oauth2.Token, error) {
	type answer struct {
		token *oauth2.Token
		err   error
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	got := make(chan answer, 1)
	go func() { // a source knows no context
		defer func() { <-c.turn }()
		token, err := c.source.Token()
		got <- answer{token, err}
	}()
	select {
	case a := <-got:
		return a.token, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Portable is why the file means nothing on another machine; nil: it does there what it
// does here.
func (c *Credentials) Portable() error {
	if c.Kind == Machine {
		return errors.New("the credentials in use are this machine's own service account, and no other machine has it")
	}
	var f struct {
		file
		Source file `json:"source_credentials"`
	}
	if err := json.Unmarshal(c.JSON, &f); err != nil {
		return err
	}
	for _, part := range []file{f.file, f.Source} {
		s := part.CredentialSource
		if s.File != "" || s.Executable != nil || s.URL != "" || s.Env != "" {
			return fmt.Errorf("%s names what proves this machine's identity, which another machine does not have", c.Path)
		}
	}
	return nil
}

// WellKnown is where Google's tools look for that file below the home folder, wherever the machine is.
const WellKnown = ".config/gcloud/application_default_credentials.json"
