package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	// engineBoot is how long the engine of a machine that has just booted may
	// take to answer.
	engineBoot = time.Minute
	// shortCall bounds a call that neither pulls nor waits.
	shortCall = 2 * time.Minute
)

// engine is the machine's docker.
type engine struct {
	command []string // "docker", or "sudo -n docker"
	arch    string   // of the machine, as images have it
}

// failed is what docker said when it refused.
type failed struct {
	what string // was asked for
	said string
	code int
}

func (f *failed) Error() string { return fmt.Sprintf("docker %s: %s", f.what, f.said) }

// says reports whether docker's answer has one of the texts, in any case.
func says(err error, texts ...string) bool {
	var f *failed
	if !errors.As(err, &f) {
		return false
	}
	said := strings.ToLower(f.said)
	for _, t := range texts {
		if strings.Contains(said, strings.ToLower(t)) {
			return true
		}
	}
	return false
}

// findEngine waits for the engine of a machine that has just booted.
func findEngine(ctx context.Context, t *teller) (*engine, error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return nil, errors.New("there is no Docker on the machine, which image_id: docker:... needs; install it there (https://docs.docker.com/engine/install), or rent from an image that has it")
	}
	for began := time.Now(); ; {
		e, err := askEngine(ctx)
		if err == nil || ctx.Err() != nil || time.Since(began) > engineBoot || !says(err, "cannot connect", "is the docker daemon running", "connection refused") {
			return e, err
		}
		t.doing("waiting for Docker to start")
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// askEngine finds out in which way the engine lets us in.
func askEngine(ctx context.Context) (*engine, error) {
	e := &engine{command: []string{"docker"}}
	arch, err := e.run(ctx, "version", "--format", "{{.Server.Arch}}")
	if err != nil && says(err, "permission denied") {
		if _, serr := exec.LookPath("sudo"); serr == nil {
			e.command = []string{"sudo", "-n", "docker"}
			arch, err = e.run(ctx, "version", "--format", "{{.Server.Arch}}")
		}
		if err != nil && !says(err, "cannot connect") {
			return nil, fmt.Errorf("the user may not use Docker on the machine: %w. Let it: sudo usermod -aG docker $USER", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("Docker does not answer on the machine: %w", err)
	}
	e.arch = arch
	return e, nil
}

// run runs docker and returns what it printed. A refusal is a [*failed].
func (e *engine) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, shortCall)
	defer cancel()
	c := e.exec(ctx, args...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	return strings.TrimSpace(out.String()), refusal(ctx, err, args[0], said.String())
}

func (e *engine) exec(ctx context.Context, args ...string) *exec.Cmd {
	words := append(append([]string{}, e.command...), args...)
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.WaitDelay = time.Second
	return c
}

func refusal(ctx context.Context, err error, what, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("docker %s: %w", what, context.Cause(ctx))
	case errors.As(err, &exit):
		said = strings.TrimSpace(said)
		said = strings.TrimPrefix(said, "Error response from daemon: ")
		return &failed{what: what, said: said[max(0, len(said)-2000):], code: exit.ExitCode()}
	}
	return fmt.Errorf("docker %s: %w", what, err)
}

// condition is what the engine knows of a container.
type condition struct {
	Status     string // created, running, paused, restarting, removing, exited, dead
	ExitCode   int
	FinishedAt time.Time
}

// inspect tells the condition of a container; nil: there is none.
func (e *engine) inspect(ctx context.Context, name string) (*condition, error) {
	out, err := e.run(ctx, "container", "inspect", "--format", "{{json .State}}", name)
	if says(err, "no such container") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c condition
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		return nil, fmt.Errorf("docker inspect: %w", err)
	}
	return &c, nil
}
