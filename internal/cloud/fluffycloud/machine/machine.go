// Package machine is one instance of FluffyCloud as processes: an ssh server on
// a loopback address of its own, with a home folder of its own, GPUs that only
// nvidia-smi knows of, and whatever its users start. All of it carries
// [EnvMachine] in its environment; that is how it is found and ended.
//
// On disk, below the machine's folder:
//
//	machine.json   what it is (written by the cloud)
//	host_key       its private host key (written by the cloud)
//	authorized_keys  who may log in (written by the cloud), besides those of home/.ssh/authorized_keys
//	home/          its disk, which survives being off
//	bin/           first in PATH: nvidia-smi, poweroff, sudo
//	sshd.json      its ssh server, while it is on
package machine

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// EnvMachine marks the processes of a machine; its value is its folder.
const EnvMachine = "FLUFFYCLOUD_MACHINE"

// Spec is machine.json.
type Spec struct {
	ID           string             `json:"id"`
	Listen       string             `json:"listen"` // ip:port of the ssh server
	User         string             `json:"user"`   // the login user's name
	Accelerators map[string]float64 `json:"accelerators,omitempty"`
	Env          []string           `json:"env,omitempty"` // key=value, which logins have besides
}

// server is sshd.json.
type server struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // proc.StartTime
}

// NewHostKey makes a host key in the machine's folder, or finds the one that is
// there, and returns its public half as in authorized_keys.
func NewHostKey(dir string) (string, error) {
	file := filepath.Join(dir, "host_key")
	if signer, err := hostKey(dir); err == nil {
		return publicKey(signer), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := wholefile.Write(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return "", err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return "", err
	}
	return publicKey(signer), nil
}

func hostKey(dir string) (ssh.Signer, error) {
	b, err := os.ReadFile(filepath.Join(dir, "host_key"))
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(b)
}

func publicKey(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

// Furnish writes what a machine needs to be switched on. The home keeps what
// is in it.
func Furnish(dir string, spec Spec, authorizedKeys string) error {
	for _, d := range []string{"home", "bin", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	files := map[string]string{"authorized_keys": authorizedKeys + "\n", "machine.json": string(b)}
	for name, data := range files {
		if err := wholefile.Write(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			return err
		}
	}
	for name, script := range programs(spec) {
		if err := wholefile.Write(filepath.Join(dir, "bin", name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// On reports whether the machine's ssh server runs.
func On(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "sshd.json"))
	if err != nil {
		return false
	}
	var s server
	return json.Unmarshal(b, &s) == nil && s.PID > 0 && proc.Alive(s.PID, s.Start)
}

func readSpec(dir string) (Spec, error) {
	var s Spec
	b, err := os.ReadFile(filepath.Join(dir, "machine.json"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, "machine.json"), err)
	}
	return s, nil
}
