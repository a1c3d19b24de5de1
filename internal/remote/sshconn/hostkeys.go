package sshconn

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// hostKeys is a file in the format of known_hosts with the keys that hosts
// showed on first contact, or that their cloud told.
type hostKeys struct {
	path string
	mu   sync.Mutex
}

type hostKey struct {
	key  ssh.PublicKey
	line int
}

// recorded returns the keys on record for an alias.
func (h *hostKeys) recorded(alias string) ([]hostKey, error) {
	b, err := os.ReadFile(h.path)
	if errors.Is(err, fs.ErrNotExist) || h.path == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []hostKey
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if f := strings.Fields(line); len(f) >= 3 && f[0] == alias {
			if key := decodeKey(f[2]); key != nil {
				out = append(out, hostKey{key, n})
			}
		}
	}
	return out, nil
}

func decodeKey(b64 string) ssh.PublicKey {
	raw, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		return nil
	}
	key, err := ssh.ParsePublicKey(raw)
	if err != nil {
		return nil
	}
	return key
}

// add records a key; one that is there stays alone.
func (h *hostKeys) add(alias string, key ssh.PublicKey) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	have, err := h.recorded(alias)
	if err != nil || h.path == "" || slices.ContainsFunc(have, func(k hostKey) bool { return sameKey(k.key, key) }) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(alias + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + "\n")
	return errors.Join(err, f.Close())
}

// forget removes the records whose alias begins with prefix.
func (h *hostKeys) forget(prefix string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := os.ReadFile(h.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || h.path == "" {
			return nil
		}
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, prefix) {
			kept.WriteString(line)
		}
	}
	if kept.Len() == len(b) {
		return nil
	}
	return wholefile.Write(h.path, []byte(kept.String()), 0o600)
}

// accepted are the keys that a target may show, and where that is written.
func (h *hostKeys) accepted(t Target) (keys []hostKey, pinned bool, err error) {
	if t.HostKey == "" {
		keys, err = h.recorded(t.alias())
		return keys, false, err
	}
	for rest := []byte(t.HostKey); len(bytes.TrimSpace(rest)) > 0; {
		key, _, _, more, err := ssh.ParseAuthorizedKey(rest)
		if err != nil {
			return nil, true, fmt.Errorf("the host key that the cloud told for %s cannot be read: %w", t, err)
		}
		keys, rest = append(keys, hostKey{key: key}), more
	}
	return keys, true, nil
}

// check is the host key callback for a target: what it shows must be one of the
// accepted keys; a first contact is noted down.
func (h *hostKeys) check(t Target, shown ssh.PublicKey) error {
	keys, pinned, err := h.accepted(t)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if sameKey(k.key, shown) {
			if pinned {
				return h.add(t.alias(), shown) // for the user's own ssh
			}
			return nil
		}
	}
	if len(keys) == 0 {
		return h.add(t.alias(), shown)
	}
	return h.changed(t, keys, pinned, ssh.FingerprintSHA256(shown))
}

func (h *hostKeys) changed(t Target, keys []hostKey, pinned bool, got string) *HostKeyError {
	e := &HostKeyError{Host: t.String(), Got: got}
	var want, lines []string
	for _, k := range keys {
		want = append(want, ssh.FingerprintSHA256(k.key))
		lines = append(lines, fmt.Sprint(k.line))
	}
	e.Want = strings.Join(want, " or ")
	if pinned {
		e.Recorded = "its cloud told so when the machine was made: somebody else may be answering in its place"
	} else {
		e.Recorded = fmt.Sprintf("line %s of %s: either the machine was installed anew, then remove that line and try again, or somebody else answers in its place", strings.Join(lines, ", "), h.path)
	}
	return e
}

// algorithms asks for the kind of key that is on record: a host with several
// kinds must not show another one.
func algorithms(keys []hostKey) []string {
	if len(keys) == 0 {
		return []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	var out []string
	for _, k := range keys {
		if k.key.Type() == ssh.KeyAlgoRSA {
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			out = append(out, k.key.Type())
		}
	}
	return out
}

func sameKey(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }
