package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
)

// DefaultSocket is where engines listen.
const DefaultSocket = "/var/run/docker.sock"

// Engine talks to a container engine through its HTTP API on a unix socket. It
// knows the few calls that nodes need.
type Engine struct {
	socket string
	http   *http.Client
}

// An EngineError is an answer other than success.
type EngineError struct {
	Status  int
	Message string
}

func (e *EngineError) Error() string { return e.Message }

// SocketFromEnv is where DOCKER_HOST says the engine listens, if that is a unix
// socket, else the usual place.
func SocketFromEnv() string {
	if path, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		return path
	}
	return DefaultSocket
}

// NewEngine returns a client of the engine that listens on a socket. It does no
// I/O.
func NewEngine(socket string) *Engine {
	e := &Engine{socket: socket}
	e.http = &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) },
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
	return e
}

// Present tells, without talking to it, whether there may be an engine.
func (e *Engine) Present() bool {
	st, err := os.Stat(e.socket)
	return err == nil && st.Mode()&os.ModeSocket != 0
}

func (e *Engine) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, "unix", e.socket)
}

// open sends a request and returns its answer, whose body the caller closes.
func (e *Engine) open(ctx context.Context, method, path string, q url.Values, body io.Reader, contentType string) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, err
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

func refusal(resp *http.Response) error {
	b, _ := bounded.ReadAll(resp.Body, 64<<10, "a refusal")
	var said struct{ Message string }
	if json.Unmarshal(b, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(b))
	}
	if said.Message == "" {
		said.Message = "the engine answered " + resp.Status
	}
	return &EngineError{resp.StatusCode, said.Message}
}

// call sends in as JSON and decodes the answer into out; either may be nil.
func (e *Engine) call(ctx context.Context, method, path string, q url.Values, in, out any) error {
	var body io.Reader
	contentType := ""
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, contentType = bytes.NewReader(b), "application/json"
	}
	resp, err := e.open(ctx, method, path, q, body, contentType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	return bounded.JSON(resp.Body, answerMost, "the engine's answer", out)
}

// answerMost is more than the longest answer of an engine.
const answerMost = 64 << 20

// Info is what the engine says about itself and its machine.
type Info struct {
	ID            string
	Name          string
	NCPU          int
	MemTotal      int64
	OSType        string
	Architecture  string // as uname has it
	ServerVersion string
	Runtimes      map[string]any
}

// Info asks the engine about itself.
func (e *Engine) Info(ctx context.Context) (*Info, error) {
	i := &Info{}
	return i, e.call(ctx, "GET", "/info", nil, nil, i)
}

// status is the code of an engine's refusal, 0 if err is none.
func status(err error) int {
	var refused *EngineError
	if errors.As(err, &refused) {
		return refused.Status
	}
	return 0
}

// Upload unpacks a tar archive in a container, at its root.
func (e *Engine) Upload(ctx context.Context, container string, tar io.Reader) error {
	resp, err := e.open(ctx, "PUT", "/containers/"+container+"/archive", url.Values{"path": {"/"}}, tar, "application/x-tar")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// Pull fetches an image. What goes wrong halfway is told in the stream.
func (e *Engine) Pull(ctx context.Context, image string) error {
	q := url.Values{"fromImage": {image}}
	if !strings.Contains(image, "@") && !strings.Contains(image[strings.LastIndex(image, "/")+1:], ":") {
		q.Set("tag", "latest") // else all of them come
	}
	resp, err := e.open(ctx, "POST", "/images/create", q, nil, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := bounded.NewLines(resp.Body, 1<<20, "what the engine says of a pull", nil); ; {
		var line struct{ Error string }
		err := lines.Decode(ctx, &line)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("pulling %s: %w", image, err)
		}
		if line.Error != "" {
			return &EngineError{http.StatusInternalServerError, line.Error}
		}
	}
}
