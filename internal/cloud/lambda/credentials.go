package lambda

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// keysFile is where the key is, below the home folder.
const keysFile = ".lambda_cloud/lambda_keys"

const fix = "make an API key at https://cloud.lambda.ai/api-keys and write the line \"api_key = KEY\" into ~/" + keysFile

// connection keeps the client for as long as the key stays the same.
type connection struct {
	mu     sync.Mutex
	key    string
	client *client
}

// client calls Lambda's API.
type client struct {
	*rest.Client
	keys sync.Mutex // held while ssh keys are looked at and made
}

// api is the cloud, by the key of this moment.
func (p *Provider) api() (*client, error) {
	key, err := p.key()
	if err != nil {
		return nil, &cloud.AuthError{Cloud: Name, Fix: fix, Err: err}
	}
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	if p.conn.client == nil || p.conn.key != key {
		if p.conn.client != nil {
			p.conn.client.Close()
		}
		p.conn.key = key
		p.conn.client = &client{Client: rest.New(rest.Options{Cloud: "Lambda", Endpoint: p.o.Endpoint, Authorize: rest.Bearer(key), Paces: p.o.Paces, Busy: p.o.Busy})}
	}
	return p.conn.client, nil
}

// key reads the line "api_key = KEY" of the keys file.
func (p *Provider) key() (string, error) {
	home := p.o.Home
	if home == "" {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", errors.New("there is no home folder to look for credentials in")
		}
	}
	text, err := os.ReadFile(filepath.Join(home, keysFile))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(line, "=")
		if value = strings.TrimSpace(value); ok && strings.TrimSpace(name) == "api_key" && value != "" {
			return value, nil
		}
	}
	return "", fmt.Errorf("~/%s has no line \"api_key = KEY\"", keysFile)
}

// CredentialStamp changes when the key does; "" without one.
func (p *Provider) CredentialStamp() string {
	key, err := p.key()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))[:12]
}

// CarryCredentials is the keys file with the key in use.
func (p *Provider) CarryCredentials(context.Context) (map[string][]byte, error) {
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{keysFile: fmt.Appendf(nil, "api_key = %s\n", key)}, nil
}
