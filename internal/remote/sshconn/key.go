package sshconn

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/wholefile"
)

// keyFile is the name of a user's private key in their folder.
const keyFile = "sky-key"

// UserKey returns the path of a user's private key below dir
// (<dir>/clients/<user>/ssh/sky-key) and the public half as authorized_keys has
// it. The pair is made on first use.
func UserKey(dir, user string) (path, public string, err error) {
	if user == "" || user != filepath.Base(user) || strings.HasPrefix(user, ".") {
		return "", "", fmt.Errorf("%q cannot be a user's folder", user)
	}
	path = filepath.Join(dir, "clients", user, "ssh", keyFile)
	for range 2 { // again if somebody else was quicker
		b, err := os.ReadFile(path)
		if err == nil {
			public, err := publicHalf(b)
			if err != nil {
				return "", "", fmt.Errorf("%s is damaged: %w. Remove it to have a new one made; running machines only know the old one", path, err)
			}
			return path, public, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", "", err
		}
		if err := makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", "", fmt.Errorf("making the key %s: %w", path, err)
		}
	}
	return "", "", fmt.Errorf("the key %s comes and goes", path)
}

// SharedKey is [UserKey] for servers that must all reach a user's machines:
// share is told the private key that is here and returns the one that all use.
func SharedKey(dir, user string, share func(private []byte) ([]byte, error)) (path, public string, err error) {
	path, public, err = UserKey(dir, user)
	if err != nil {
		return "", "", err
	}
	mine, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	all, err := share(mine)
	if err != nil {
		return "", "", fmt.Errorf("sharing the ssh key of %s with the other servers: %w", user, err)
	}
	if bytes.Equal(mine, all) {
		return path, public, nil
	}
	if public, err = publicHalf(all); err != nil {
		return "", "", err
	}
	return path, public, wholefile.Write(path, all, 0o600)
}

func publicHalf(private []byte) (string, error) {
	s, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey()))) + " sky", nil
}

// makeKey writes a new pair; the private key appears whole or not at all, and
// never in the place of another.
func makeKey(path string) error {
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(priv, "sky")
	if err != nil {
		return err
	}
	data := pem.EncodeToMemory(block)
	public, err := publicHalf(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".sky-key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Rename(tmp.Name(), path); err != nil { // no hard links here
			return err
		}
	}
	return wholefile.Write(path+".pub", []byte(public+"\n"), 0o600)
}
