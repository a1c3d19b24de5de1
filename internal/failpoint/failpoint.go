// Package failpoint ends a simulated process at a chosen step, for tests of what
// a crash leaves.
//
// A step is a call that has an effect outside of the process: to a database, a
// cloud, an agent. The process may end before a step, or after it had its effect
// and before its answer is read. From then on each step fails with [ErrDead] and
// does nothing.
package failpoint

import (
	"context"
	"errors"
	"sync"
)

// ErrDead is the error of a step of a process that has ended.
var ErrDead = errors.New("this process has ended")

// Process is one life of a simulated process. Its methods may be called
// concurrently.
type Process struct {
	ctx context.Context
	end context.CancelCauseFunc

	mu    sync.Mutex
	cause error
	left  int // half steps until it ends; negative: it does not end by itself
	dead  bool
	taken []string
	made  int // half steps
	hooks map[int]func()
	told  func(step string)
	no    map[string]error // steps that are refused

	telling sync.Mutex
}

// Endless is the number of steps of a process that does not end by itself.
const Endless = -1

// New begins a process that ends after that many half steps: an even number
// ends it before a step, an odd one after the step's effect. Its context ends with
// cause.
func New(parent context.Context, halfSteps int, cause error) *Process {
	p := &Process{left: halfSteps, cause: cause}
	p.ctx, p.end = context.WithCancelCause(parent)
	return p
}

// Context ends when the process does.
func (p *Process) Context() context.Context { return p.ctx }

// Kill ends the process at once.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	p.dead = true
	p.end(p.cause)
}

// Dead reports whether the process has ended.
func (p *Process) Dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Steps are the names of the steps that were begun, in their order.
func (p *Process) Steps() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.taken...)
}

// At calls f once so many half steps were made. It does not end the process.
func (p *Process) At(halfSteps int, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hooks == nil {
		p.hooks = map[int]func(){}
	}
	p.hooks[p.made+halfSteps] = f
}

// Tell calls f with the name of each step before it is made, one call at a time.
func (p *Process) Tell(f func(step string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = f
}

// Refuse makes all steps of that name fail without an effect; nil: no longer.
func (p *Process) Refuse(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.no == nil {
		p.no = map[string]error{}
	}
	p.no[name] = err
}

func (p *Process) before(name string) (told func(string), refused error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told, p.no[name]
}

func (p *Process) tell(told func(string), step string) {
	p.telling.Lock()
	defer p.telling.Unlock()
	told(step)
}

// half is one side of a step; name is "" behind it.
func (p *Process) half(name string) error {
	p.mu.Lock()
	f := p.hooks[p.made]
	delete(p.hooks, p.made)
	p.made++
	p.mu.Unlock()
	if f != nil {
		f()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return ErrDead
	}
	if p.left == 0 {
		p.kill()
		return ErrDead
	}
	if p.left > 0 {
		p.left--
	}
	if name != "" {
		p.taken = append(p.taken, name)
	}
	return nil
}

// Do makes one step.
func (p *Process) Do(name string, f func() error) error {
	told, refused := p.before(name)
	if told != nil {
		p.tell(told, name)
	}
	if err := p.half(name); err != nil {
		return err
	}
	err := refused
	if err == nil {
		err = f()
	}
	if dead := p.half(""); dead != nil {
		return dead
	}
	return err
}

// Get is Do for a step with a result.
func Get[T any](p *Process, name string, f func() (T, error)) (v T, err error) {
	var none T
	err = p.Do(name, func() (err error) { v, err = f(); return err })
	if errors.Is(err, ErrDead) {
		return none, err
	}
	return v, err
}
