package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// key is a token with what it is good for.
type key struct {
	Token   string `json:"token"`
	Account string `json:"account,omitempty"`
	Role    string `json:"role"` // "owner", "reader", or "admin": the cloud's operator
}

// keys are all tokens. The first one is the user's.
type keys []key

// readTokens reads tokens.json, which is made with the first start.
func readTokens(file string) (keys, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		k := keys{
			{Token: rand.Text(), Account: "you", Role: "owner"},
			{Token: rand.Text(), Account: "you", Role: "reader"},
			{Token: rand.Text(), Account: "somebody-else", Role: "owner"},
			{Token: rand.Text(), Role: "admin"},
		}
		return k, writeJSON(file, k)
	}
	if err != nil {
		return nil, err
	}
	var k keys
	if err := json.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", file, err)
	}
	for _, one := range k {
		if one.Token == "" || one.Role == "" {
			return nil, fmt.Errorf("%s: an entry lacks its token or its role", file)
		}
	}
	return k, nil
}

// of finds the key that a request carries.
func (k keys) of(r *http.Request) (key, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return key{}, false
	}
	given := sha256.Sum256([]byte(token))
	for _, one := range k {
		have := sha256.Sum256([]byte(one.Token))
		if subtle.ConstantTimeCompare(given[:], have[:]) == 1 {
			return one, true
		}
	}
	return key{}, false
}

// writeCredentials tells users and operators how to get in.
func (k keys) writeCredentials(dir, endpoint, further string) error {
	write := func(file, role string) error {
		for _, one := range k {
			if one.Role == role {
				return wholefile.Write(file, fmt.Appendf(nil, "endpoint = %s\ntoken = %s\n", endpoint, one.Token), 0o600)
			}
		}
		return nil
	}
	if further != "" {
		if err := os.MkdirAll(filepath.Dir(further), 0o700); err != nil {
			return err
		}
		if err := write(further, "owner"); err != nil {
			return err
		}
	}
	return errors.Join(write(filepath.Join(dir, "credentials"), "owner"), write(filepath.Join(dir, "admin-credentials"), "admin"))
}
