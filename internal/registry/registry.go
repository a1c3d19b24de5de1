// Package registry is about where container images come from: what a registry
// makes of an image's name, and how one logs in to it. Docker on a machine and
// Kubernetes take the same text of a login.
package registry

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// Login is for a private registry. Without a name and a password it only says
// which registry is meant. It prints without its password.
type Login struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Server   string `json:"server"` // host, or host:port, or what begins with one; "": Docker Hub
}

func (l Login) String() string       { return fmt.Sprintf("%s at %s", l.Username, l.Server) }
func (l Login) GoString() string     { return l.String() }
func (l Login) LogValue() slog.Value { return slog.StringValue(l.String()) }

// Complete reports whether one can log in with it; nil is no login.
func (l *Login) Complete() bool { return l != nil && l.Username != "" }

// hubKey is how Docker calls its own registry where logins are kept.
const hubKey = "https://index.docker.io/v1/"

// Image is an image's whole name: the login's registry comes before a name that
// has none. A nil login changes nothing.
func (l *Login) Image(name string) string {
	if l == nil || hub(l.Server) || strings.HasPrefix(name, trimmed(l.Server)+"/") {
		return name
	}
	return trimmed(l.Server) + "/" + name
}

// key is what the login is kept under: the registry's host.
func (l *Login) key() string {
	if hub(l.Server) {
		return hubKey
	}
	host, _, _ := strings.Cut(trimmed(l.Server), "/")
	return host
}

// File is the login as Docker's config.json has it, and a Secret of the type
// kubernetes.io/dockerconfigjson.
func (l *Login) File() []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password))
	text, err := json.Marshal(map[string]any{"auths": map[string]any{l.key(): map[string]string{"auth": auth}}})
	if err != nil {
		panic(err) // it is made of text
	}
	return text
}

// HostOf is the registry in an image's whole name, for people.
func HostOf(image string) string {
	host, _, more := strings.Cut(image, "/")
	if !more || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "Docker Hub"
	}
	return host
}

// trimmed is a server as it begins the names of images.
func trimmed(server string) string {
	_, after, ok := strings.Cut(server, "://")
	if !ok {
		after = server
	}
	return strings.TrimSuffix(after, "/")
}

func hub(server string) bool {
	host, _, _ := strings.Cut(trimmed(server), "/")
	return host == "" || host == "docker.io" || host == "index.docker.io" || host == "registry-1.docker.io"
}
