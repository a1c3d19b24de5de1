package azureauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (c *Credentials) tokenURL() string {
	tenant := c.Tenant
	if tenant == "" {
		tenant = "organizations"
	}
	return c.Cloud.Login + "/" + url.PathEscape(tenant) + "/oauth2/v2.0/token"
}

// grant asks Microsoft Entra ID for a token.
func (c *Credentials) grant(ctx context.Context, scope string, values map[string]string) (Token, error) {
	form := url.Values{"client_id": {c.Account}, "scope": {scope}}
	for k, v := range values {
		form.Set(k, v)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.tokenURL(), strings.NewReader(form.Encode()))
	if err != nil {
		return Token{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return c.send(r)
}

// send makes a call whose answer is a token, or a refusal as OAuth 2.0 has it.
func (c *Credentials) send(r *http.Request) (Token, error) {
	client := http.Client{Transport: c.o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		var u *url.Error // holds the whole URL, which helps nobody
		if errors.As(err, &u) {
			err = u.Err
		}
		return Token{}, fmt.Errorf("no answer from %s: %w", r.URL.Host, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return Token{}, fmt.Errorf("no answer from %s: %w", r.URL.Host, err)
	}
	var said struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   any    `json:"expires_in"` // a number, or one as text
		ExpiresOn   any    `json:"expires_on"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err = json.Unmarshal(text, &said)
	switch {
	case err == nil && answer.StatusCode == http.StatusOK && said.AccessToken != "":
		t := Token{Value: said.AccessToken, Expires: time.Now().Add(time.Hour)}
		if n, ok := seconds(said.ExpiresIn); ok {
			t.Expires = time.Now().Add(time.Duration(n) * time.Second)
		} else if n, ok := seconds(said.ExpiresOn); ok {
			t.Expires = time.Unix(n, 0)
		}
		return t, nil
	case err == nil && said.Error != "" && !slices.Contains(passing, answer.StatusCode) && answer.StatusCode < 500:
		first, _, _ := strings.Cut(said.Description, "\r\n") // the rest are ids of the call
		return Token{}, &RefusedError{Code: said.Error, Message: strings.TrimSuffix(strings.TrimSpace(first), "."), Fix: c.fix(first)}
	}
	return Token{}, &statusError{r.URL.Host, answer.StatusCode}
}

// passing are statuses after which the same is asked again, as the metadata service wants it.
var passing = []int{http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests}

// statusError is an answer that proves nothing.
type statusError struct {
	host   string
	status int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answers with status %d, and no token", e.host, e.status)
}

// fix mends what a message of Microsoft Entra ID is about.
func (c *Credentials) fix(message string) string {
	switch {
	case strings.Contains(message, "AADSTS7000222"): // the secret is too old
		return "make a new secret: az ad app credential reset --id " + c.Account + "  and set AZURE_CLIENT_SECRET"
	case strings.Contains(message, "AADSTS7000215"), strings.Contains(message, "AADSTS700016"), strings.Contains(message, "AADSTS90002"):
		return "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET (the secret's value, not its id) of a service principal"
	case c.Kind == kindCLI:
		return strings.TrimSuffix("run: az login --tenant "+c.Tenant, " --tenant ")
	}
	return Fix
}

func seconds(v any) (int64, bool) {
	switch v := v.(type) {
	case float64:
		return int64(v), true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// Claims are what a token says of itself; nothing is verified.
type Claims struct {
	Tenant string `json:"tid"`
	Object string `json:"oid"`
	App    string `json:"appid"`
	User   string `json:"upn"`
	Name   string `json:"unique_name"`
}

// Claims reads the token, for people: whoever accepts it verifies it.
func (t Token) Claims() (c Claims) {
	parts := strings.Split(t.Value, ".")
	if len(parts) != 3 {
		return c
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err == nil {
		_ = json.Unmarshal(text, &c)
	}
	return c
}
