package container

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/registry"
)

const (
	// pullTimeout bounds the pull of an image, however large.
	pullTimeout = time.Hour
	// pullTries is how often a pull is made that the network breaks off; layers
	// that have arrived stay.
	pullTries = 4
	// heartbeat is how often a pull says that it goes on.
	heartbeat = 10 * time.Second
)

// ensureImage makes the image be on the machine. One that is there is taken,
// unless its tag is "latest" or none, which means the newest.
func (e *engine) ensureImage(ctx context.Context, s Spec, t *teller) (image string, err error) {
	image = s.Login.Image(s.Image)
	have, err := e.archOf(ctx, image)
	if err != nil {
		return "", err
	}
	if have == "" || moves(image) {
		t.doing("pulling %s", image)
		if err := e.pull(ctx, image, s.Login, t); err != nil {
			if have == "" || ctx.Err() != nil {
				return "", err
			}
			// What is there will do, as it does for docker run.
			t.doing("%s could not be pulled; the one that is on the machine is used", image)
		}
		if have, err = e.archOf(ctx, image); err != nil {
			return "", err
		}
	}
	if have != "" && have != e.arch {
		return "", &ImageError{fmt.Errorf("the image %s is for %s, and the machine is %s; use an image that was built for it, or another instance type", image, have, e.arch)}
	}
	return image, nil
}

// archOf is the processor an image on the machine is for; "": it is not there.
func (e *engine) archOf(ctx context.Context, image string) (string, error) {
	arch, err := e.run(ctx, "image", "inspect", "--format", "{{.Architecture}}", image)
	if says(err, "no such image") {
		return "", nil
	}
	return arch, err
}

// moves reports whether the image that a name means changes by itself.
func moves(image string) bool {
	if strings.Contains(image, "@") {
		return false
	}
	_, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return !ok || tag == "latest"
}

// loginFolder writes a login where Docker finds it for one pull; it never is in
// a list of processes, and on disk only until then.
func loginFolder(l *registry.Login) (string, error) {
	dir, err := os.MkdirTemp("", "sky-login-")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), l.File(), 0o600); err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}

func (e *engine) pull(ctx context.Context, image string, l *registry.Login, t *teller) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("pulling %s took longer than %v", image, pullTimeout))
	defer cancel()
	args := []string{"pull", image}
	if l != nil {
		dir, err := loginFolder(l)
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		args = append([]string{"--config", dir}, args...)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(heartbeat):
				t.again()
			}
		}
	}()
	for try := 1; ; try++ {
		err := e.pullOnce(ctx, args, image, t)
		if err == nil || try == pullTries || ctx.Err() != nil || !broken(err) {
			return asImageError(pullError(err, image, l, e.arch), err)
		}
		t.doing("pulling %s again: %v", image, err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * 2 * time.Second):
		}
	}
}

func (e *engine) pullOnce(ctx context.Context, args []string, image string, t *teller) error {
	c := e.exec(ctx, args...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	var p progress
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if p.read(lines.Text()) {
			t.doing("pulling %s: %d of %d layers", image, len(p.done), len(p.layers))
		}
	}
	return refusal(ctx, c.Wait(), "pull", said.String())
}

// progress counts the layers of a pull.
type progress struct{ layers, done map[string]bool }

// read takes a line of docker pull in and reports whether the counts changed.
func (p *progress) read(line string) bool {
	layer, what, ok := strings.Cut(line, ": ")
	if !ok || len(layer) != 12 {
		return false
	}
	if p.layers == nil {
		p.layers, p.done = map[string]bool{}, map[string]bool{}
	}
	layers, done := len(p.layers), len(p.done)
	p.layers[layer] = true
	if what == "Pull complete" || what == "Already exists" {
		p.done[layer] = true
	}
	return len(p.layers) != layers || len(p.done) != done
}

// broken reports whether a pull failed on its way and may succeed when made again.
func broken(err error) bool {
	return says(err, "timeout", "timed out", "connection reset", "connection refused", "unexpected eof", "temporary failure", "no such host",
		"tls handshake", "toomanyrequests", "too many requests", "502 ", "503 ", "504 ", "server misbehaving")
}

// pullError says in plain words why an image did not come.
func pullError(err error, image string, l *registry.Login, arch string) error {
	server := registry.HostOf(image)
	switch {
	case err == nil:
		return nil
	case says(err, "no space left"):
		return &NoSpaceError{Image: image, Err: err}
	case says(err, "no matching manifest", "does not match the specified platform", "no match for platform"):
		return fmt.Errorf("the image %s is not there for %s, which the machine is; build it for that processor, or use another instance type: %w", image, arch, err)
	case says(err, "repository does not exist"):
		if l != nil {
			return fmt.Errorf("there is no image %s, or the login as %s does not reach it: %w", image, l.Username, err)
		}
		return fmt.Errorf("there is no image %s, or it is private and needs a login: set SKYPILOT_DOCKER_USERNAME, SKYPILOT_DOCKER_PASSWORD and SKYPILOT_DOCKER_SERVER in the task's secrets: %w", image, err)
	case says(err, "manifest unknown", "not found", "name unknown"):
		return fmt.Errorf("%s has no image %s; look at its name and tag: %w", server, image, err)
	case says(err, "toomanyrequests", "too many requests"):
		return fmt.Errorf("%s allows no more pulls for the moment; with a login it allows more (SKYPILOT_DOCKER_USERNAME, ..._PASSWORD, ..._SERVER): %w", server, err)
	case says(err, "unauthorized", "authentication required", "denied", "incorrect username or password", "no basic auth credentials"):
		if l != nil {
			return fmt.Errorf("%s refuses the login as %s (SKYPILOT_DOCKER_USERNAME, ..._PASSWORD, ..._SERVER): %w", server, l.Username, err)
		}
		return fmt.Errorf("%s wants a login for %s: set SKYPILOT_DOCKER_USERNAME, SKYPILOT_DOCKER_PASSWORD and SKYPILOT_DOCKER_SERVER in the task's secrets: %w", server, image, err)
	case broken(err):
		return fmt.Errorf("the machine does not get %s from %s: %w", image, server, err)
	}
	return fmt.Errorf("pulling %s: %w", image, err)
}

// An ImageError means that the image cannot be had as it is named: trying again does not
// help.
type ImageError struct{ Err error }

func (e *ImageError) Error() string { return e.Err.Error() }
func (e *ImageError) Unwrap() error { return e.Err }

// asImageError is what pullError said of what a pull failed with, as an ImageError unless
// something else than the image is at fault.
func asImageError(said, why error) error {
	if why == nil || errors.As(said, new(*NoSpaceError)) || broken(why) || says(why, "toomanyrequests", "too many requests") || errors.Is(why, context.DeadlineExceeded) || errors.Is(why, context.Canceled) {
		return said
	}
	return &ImageError{said}
}

// A NoSpaceError means that the machine's disk has no room for an image.
type NoSpaceError struct {
	Image string
	Err   error
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("the image %s does not fit onto the machine's disk; ask for a larger one (resources: disk_size): %v", e.Image, e.Err)
}
func (e *NoSpaceError) Unwrap() error { return e.Err }
