package gcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/oauth2"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/googleauth"
)

// account is a project that is reached with credentials. It is made again when either
// changes.
type account struct {
	stamp   string
	creds   *googleauth.Credentials
	project string
	home    string // the project in use, if this is another
	compute *rest.Client
	tpu     *rest.Client
	manager *rest.Client // Cloud Resource Manager
	finder  *rest.Client // its version that searches
	iam     *rest.Client
	usage   *rest.Client // Service Usage
	openid  *rest.Client
	ready   readiness
	queues  readiness // of the queues for TPUs, which have permissions of their own
}

// on is the path of something in the project.
func (a *account) on(format string, parts ...any) string {
	return a.in(a.project, format, parts...)
}

// in is the path of something in a project.
func (a *account) in(project, format string, parts ...any) string {
	for i, p := range parts {
		if text, ok := p.(string); ok {
			parts[i] = url.PathEscape(text)
		}
	}
	return "/projects/" + url.PathEscape(project) + fmt.Sprintf(format, parts...)
}

const fixProject = "gcloud config set project PROJECT  (or set GOOGLE_CLOUD_PROJECT, or project_id of gcp in the workspace), then: sky check gcp"

// CredentialStamp changes when the credentials or the project do.
func (p *Provider) CredentialStamp() string {
	parts := []string{googleauth.Stamp(), p.o.Settings().Project, googleauth.EnvironmentProject(), googleauth.Active("project"), os.Getenv(vm.EndpointVariable(Name))}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\x00"))))[:16]
}

// api is the account of this moment.
func (p *Provider) api(ctx context.Context) (*account, error) {
	stamp := p.CredentialStamp()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.account != nil && p.account.stamp == stamp {
		return p.account, nil
	}
	refused := func(fix string, err error) (*account, error) {
		return nil, &cloud.AuthError{Cloud: Name, Fix: fix, Err: err, NotSetUp: errors.Is(err, googleauth.ErrNone)}
	}
	creds, err := googleauth.Find(ctx, p.o.Transport, googleauth.Scope)
	if err != nil {
		return refused(googleauth.Fix+", then: sky check gcp", err)
	}
	project := cmp.Or(p.o.Settings().Project, googleauth.EnvironmentProject(), creds.Project, googleauth.Active("project"))
	if project == "" {
		return refused(fixProject, errors.New("there is no project"))
	}
	elsewhere, err := vm.Endpoint(Name, p.o.Endpoint)
	if err != nil {
		return nil, err
	}
	client := func(host, version string) *rest.Client {
		o := rest.Options{
			Cloud: "Google Cloud", Endpoint: cmp.Or(elsewhere, "https://"+host+".googleapis.com") + version, Transport: p.o.Transport, Paces: p.o.Paces, Busy: p.o.Busy,
			Refusal: reads(host), Authorize: p.authorize(creds, cmp.Or(creds.QuotaProject, project), host),
		}
		return rest.New(o)
	}
	p.others = nil
	p.account = &account{
		ready: readiness{making: make(chan struct{}, 1)}, finder: client("cloudresourcemanager", "/v3"), stamp: stamp, creds: creds, project: project, compute: client("compute", "/compute/v1"), tpu: client("tpu", "/v2"),
		manager: client("cloudresourcemanager", "/v1"), iam: client("iam", "/v1"), usage: client("serviceusage", "/v1"), openid: client("www", "/oauth2/v2"),
	}
	return p.account, nil
}

// authorize adds a token to calls. Those of a user's credentials that are not to Compute
// Engine count for the project of the tool that the user logged in with, if no other is
// named.
func (p *Provider) authorize(creds *googleauth.Credentials, quotaProject, host string) func(*http.Request) error {
	return func(r *http.Request) error {
		token, err := creds.Token(r.Context())
		if err != nil {
			return tokenRefused(r.Context(), err)
		}
		r.Header.Set("Authorization", "Bearer "+token.AccessToken)
		if creds.Kind == googleauth.User && host != "compute" && host != "www" {
			r.Header.Set("X-Goog-User-Project", quotaProject)
		}
		return nil
	}
}

// tokenRefused says why there is no token: the credentials are no longer good, or nobody
// answered.
func tokenRefused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &rest.NoAnswerError{Cloud: "Google Cloud", Err: err}
	}
	var (
		answer *oauth2.RetrieveError
		lost   *url.Error
	)
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.StatusCode >= 500 || !errors.As(err, &answer) && errors.As(err, &lost) {
		return &rest.NoAnswerError{Cloud: "Google Cloud", Err: err}
	}
	return &cloud.AuthError{Cloud: Name, Fix: googleauth.Fix + ", then: sky check gcp", Err: err}
}

// CarryCredentials are the file of the credentials, and which project is used.
func (p *Provider) CarryCredentials(ctx context.Context) (map[string][]byte, error) {
	a, err := p.api(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.creds.Portable(); err != nil {
		return nil, fmt.Errorf("%w; use the key of a service account (GOOGLE_APPLICATION_CREDENTIALS), or remote_identity: SERVICE_ACCOUNT", err)
	}
	return map[string][]byte{
		googleauth.WellKnown:                           a.creds.JSON,
		".config/gcloud/configurations/config_default": []byte("[core]\nproject = " + a.project + "\n"),
	}, nil
}
