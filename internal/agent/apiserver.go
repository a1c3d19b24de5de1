//go:build unix

package agent

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// serverDialTimeout bounds connecting to an API server on this machine.
const serverDialTimeout = 10 * time.Second

// getServer joins the caller with the API server that runs on this node. Which
// port it has is read anew for each connection: it may have been started again.
func (a *Agent) getServer(w http.ResponseWriter, r *http.Request) error {
	home := r.URL.Query().Get("home")
	if home == "" {
		home = "."
	}
	if !filepath.IsLocal(home) {
		return invalid("the server's home " + strconv.Quote(home) + " is not below the agent's")
	}
	address, err := serverAddress(filepath.Join(a.o.Home, home))
	if err != nil {
		return err
	}
	return a.join(w, r, address, agentapi.ServerProtocol, "the API server on this node does not answer: ")
}

// getDial joins the caller with an address that this node reaches: ports that ssh
// forwards. Whoever may ask has a shell here anyway.
func (a *Agent) getDial(w http.ResponseWriter, r *http.Request) error {
	defer a.session()()
	return a.join(w, r, r.URL.Query().Get("address"), agentapi.DialProtocol, "")
}

// join connects to an address and the caller with it; refused begins what is said if
// nobody answers there.
func (a *Agent) join(w http.ResponseWriter, r *http.Request, address, protocol, refused string) error {
	dialer := net.Dialer{Timeout: serverDialTimeout}
	far, err := dialer.DialContext(r.Context(), "tcp", address)
	if err != nil {
		return &agentapi.Error{Code: agentapi.CodeNotFound, Message: refused + err.Error()}
	}
	defer far.Close()
	near, done, err := a.upgrade(w, r, protocol)
	if err != nil {
		return err
	}
	defer done()
	go func() {
		if _, err := io.Copy(far, near); err != nil {
			far.Close() // the caller is gone
			return
		}
		_ = far.(*net.TCPConn).CloseWrite() // it has nothing more to say, and may still want the answer
	}()
	_, _ = io.Copy(near, far)
	return nil
}

// serverAddress is where the API server of a home folder listens.
func serverAddress(home string) (string, error) {
	none := &agentapi.Error{Code: agentapi.CodeNotFound, Message: "no API server runs on this node"}
	b, err := os.ReadFile(filepath.Join(home, ".sky", "api_server", "instance.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", none
	}
	if err != nil {
		return "", err
	}
	var in struct {
		PID      int    `json:"pid"`
		Start    string `json:"start"`
		Endpoint string `json:"endpoint"`
	}
	if err := json.Unmarshal(b, &in); err != nil || !proc.Alive(in.PID, in.Start) {
		return "", none
	}
	u, err := url.Parse(in.Endpoint)
	if err != nil {
		return "", none
	}
	host, port, err := net.SplitHostPort(u.Host)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return "", none
	}
	return net.JoinHostPort(host, port), nil
}
