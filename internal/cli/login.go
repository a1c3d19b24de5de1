package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/localserver"
	"github.com/skypilot-go/sky/internal/cli/term"
)

// loginOptions are the flags of sky api login.
type loginOptions struct {
	endpoint, token    string
	relogin, noBrowser bool
}

func (a *app) apiLoginCommand() *cobra.Command {
	var o loginOptions
	return a.build(command{
		name: "login", short: "Use an API server elsewhere.",
		example: "sky api login -e https://sky.example.com\nsky api login -e https://sky.example.com --token sky_…",
		flags: func(f flags) {
			f.text(&o.endpoint, "endpoint", "e", "URL of the API server.")
			f.on(&o.relogin, "relogin", "", "Log in again although there is a login.")
			f.text(&o.token, "service-account-token", "t", "Token of a service account, instead of a login in the browser.")
			f.StringVar(&o.token, "token", "", "")
			f.hide("token")
			f.on(&o.noBrowser, "no-browser", "", "Print the address to visit instead of opening a browser.")
		},
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error { return a.login(ctx, o) },
	})
}

func (a *app) login(ctx context.Context, o loginOptions) error {
	if a.env("SKYPILOT_API_SERVER_ENDPOINT") != "" {
		return errors.New("the endpoint is set by an environment variable, so a login would have no effect. Run: unset SKYPILOT_API_SERVER_ENDPOINT")
	}
	if o.token != "" && !strings.HasPrefix(o.token, "sky_") {
		return usagef(`Invalid service account token format. Token must start with "sky_"`)
	}
	if o.endpoint == "" {
		var err error
		if o.endpoint, err = a.t.Ask(ctx, "Enter your SkyPilot API server endpoint: "); err != nil {
			return err
		}
	}
	u, err := sky.ParseEndpoint(o.endpoint)
	if err != nil {
		return usagef("%v", err)
	}
	endpoint := strings.TrimRight(u.String(), "/")
	c, err := a.clientFor(endpoint, o.token)
	if err != nil {
		return err
	}
	h, err := c.Health(ctx)
	if _, locked := errors.AsType[*sky.AuthError](err); locked && o.token == "" || err == nil && o.relogin && h.User != nil {
		if h, err = a.browserLogin(ctx, c, endpoint, o.noBrowser); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if err := saveEndpoint(a.configFile(false), endpoint, o.token); err != nil {
		return fmt.Errorf("saving the endpoint: %w", err)
	}
	who := c.User()
	if h.User != nil {
		who = *h.User
	}
	a.t.Println(a.t.Style(term.Green, "Logged into SkyPilot API server at: "+c.Endpoint()))
	a.t.Printf("├── User: %s (%s)\n└── Dashboard: %s/dashboard\n", who.Name, who.ID, c.Endpoint())
	return nil
}

func (a *app) clientFor(endpoint, token string) (*sky.Client, error) {
	return sky.New(sky.Options{Endpoint: endpoint, Token: token, Environ: a.environ, Command: a.typed, Vouch: localserver.Vouch})
}

const (
	loginPatience = 300 * time.Second
	loginPoll     = time.Second
)

// browserLogin lets the user log in with a browser, keeps the cookies and
// returns the server's health as that user sees it.
func (a *app) browserLogin(ctx context.Context, c *sky.Client, endpoint string, noBrowser bool) (*api.Health, error) {
	verifier := base64.RawURLEncoding.EncodeToString(randomBytes(32))
	sum := sha256.Sum256([]byte(verifier))
	page := c.Endpoint() + "/auth/authorize?code_challenge=" + base64.RawURLEncoding.EncodeToString(sum[:])
	if noBrowser || openBrowser(page) != nil {
		a.t.Println("To log in, visit this address in a browser:\n  " + page)
	} else {
		a.t.Println("A browser window has been opened. If it has not, visit:\n  " + page)
	}
	spin := a.t.Spin("[bold cyan]Waiting for the login in the browser[/]")
	defer spin.Stop()
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	for {
		text, err := c.LoginToken(ctx, verifier)
		if err != nil {
			return nil, err
		}
		if text != "" {
			return a.useLogin(ctx, endpoint, text)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, fmt.Errorf("nobody logged in within %v", loginPatience)
			}
			return nil, ctx.Err()
		case <-time.After(loginPoll):
		}
	}
}

// useLogin stores what the login page answered.
func (a *app) useLogin(ctx context.Context, endpoint, text string) (*api.Health, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("the login's token is not understood: %w", err)
	}
	var token struct {
		Cookies map[string]string `json:"cookies"`
	}
	if err := json.Unmarshal(raw, &token); err != nil {
		return nil, fmt.Errorf("the login's token is not understood: %w", err)
	}
	if err := sky.WriteCookies(a.env, endpoint, token.Cookies); err != nil {
		return nil, fmt.Errorf("saving the login: %w", err)
	}
	c, err := a.clientFor(endpoint, "")
	if err != nil {
		return nil, err
	}
	return c.Health(ctx)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func (a *app) apiLogoutCommand() *cobra.Command {
	return a.build(command{
		name: "logout", short: "Forget the API server elsewhere and use the local one.", noConfig: true,
		example: "sky api logout",
		run: func(context.Context, *cobra.Command, []string) error {
			c, err := a.open()
			if err != nil {
				return err
			}
			if c.Local() {
				return errors.New("Local api server cannot be logged out. Use `sky api stop` instead.") //nolint:staticcheck // shown as is
			}
			if a.env("SKYPILOT_API_SERVER_ENDPOINT") != "" {
				return errors.New("the endpoint is set by an environment variable. Run: unset SKYPILOT_API_SERVER_ENDPOINT")
			}
			if err := os.Remove(sky.CookieFile(a.env)); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("removing the login: %w", err)
			}
			if err := saveEndpoint(a.configFile(false), "", ""); err != nil {
				return fmt.Errorf("removing the endpoint: %w", err)
			}
			a.t.Println("Logged out of SkyPilot API server.")
			return nil
		},
	})
}
