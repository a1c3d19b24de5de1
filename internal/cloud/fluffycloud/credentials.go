package fluffycloud

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Variables of the environment that replace the credentials file.
const (
	EnvEndpoint = "FLUFFYCLOUD_ENDPOINT"
	EnvToken    = "FLUFFYCLOUD_TOKEN"
)

// fix is how to get credentials.
const fix = "run: fluffycloud serve --dir ~/fluffycloud --credentials ~/.fluffycloud/credentials, or set " + EnvEndpoint + " and " + EnvToken

// credentials say where the cloud is and who we are to it.
type credentials struct{ endpoint, token string }

// connection keeps the client for as long as the credentials stay the same.
type connection struct {
	mu     sync.Mutex
	with   credentials
	client *fluffyapi.Client
}

// api is the cloud, by the credentials of this moment.
func (p *Provider) api() (fluffyapi.API, error) {
	if p.o.API != nil {
		return p.o.API, nil
	}
	c, err := readCredentials()
	if err != nil {
		return nil, &cloud.AuthError{Cloud: Name, Fix: fix, Err: err}
	}
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	if p.conn.client == nil || p.conn.with != c {
		if p.conn.client != nil {
			p.conn.client.Close()
		}
		p.conn.with, p.conn.client = c, fluffyapi.NewClient(c.endpoint, c.token)
	}
	return p.conn.client, nil
}

// CredentialStamp changes when the endpoint or the token does; "" without any.
func (p *Provider) CredentialStamp() string {
	if p.o.API != nil {
		return p.o.Stamp
	}
	c, err := readCredentials()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(c.endpoint + "\x00" + c.token))
	return fmt.Sprintf("%x", sum[:8])
}

func readCredentials() (credentials, error) {
	c := credentials{endpoint: os.Getenv(EnvEndpoint), token: os.Getenv(EnvToken)}
	if c.endpoint == "" && c.token == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return c, errors.New("there is no home folder to look for credentials in")
		}
		file := filepath.Join(home, ".fluffycloud", "credentials")
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("neither %s nor %s is there", file, EnvEndpoint)
		}
		if err != nil {
			return c, err
		}
		defer f.Close()
		if c, err = parseCredentials(f); err != nil {
			return c, fmt.Errorf("%s: %w", file, err)
		}
	}
	if c.endpoint == "" || c.token == "" {
		return c, errors.New("the credentials need both an endpoint and a token")
	}
	u, err := url.Parse(c.endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return c, fmt.Errorf("the endpoint %q is not an address such as http://127.0.0.1:7070", c.endpoint)
	}
	return c, nil
}

// parseCredentials reads lines of "endpoint = …" and "token = …".
func parseCredentials(r io.Reader) (credentials, error) {
	var c credentials
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return c, fmt.Errorf("line %d is not of the form key = value", n)
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "endpoint":
			c.endpoint = value
		case "token":
			c.token = value
		}
	}
	return c, lines.Err()
}

// CarryCredentials writes the credentials in use as a credentials file.
func (p *Provider) CarryCredentials(context.Context) (map[string][]byte, error) {
	c, err := readCredentials()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{".fluffycloud/credentials": fmt.Appendf(nil, "endpoint = %s\ntoken = %s\n", c.endpoint, c.token)}, nil
}
