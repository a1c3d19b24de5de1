// Package proc finds and ends processes of this machine.
//
// A process is known by its number and its start time, because numbers are
// used again. A whole tree is found in three ways that complete each other:
// the session its first process opened, the children of what was found, and a
// marker in the environment that survives daemonizing (setsid, double fork).
package proc

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// entry is one process as the system lists it.
type entry struct {
	pid, ppid, session int
	start              string
	zombie, mine       bool // mine: it belongs to this process's user
	exiting            bool // it runs nothing more, but may still have files and ports; its environment is gone
}

// StartTime returns the identity of the running process pid: a word that
// differs from that of any other process that has or had this number. It fails
// with os.ErrProcessDone if there is no such process.
func StartTime(pid int) (string, error) {
	e, err := lookup(pid)
	if err != nil {
		return "", err
	}
	return e.start, nil
}

// Alive reports whether pid runs and is still the process whose StartTime was
// start; an empty start accepts any. A zombie is not alive.
func Alive(pid int, start string) bool {
	if pid <= 0 {
		return false
	}
	e, err := lookup(pid)
	return err == nil && !e.zombie && (start == "" || e.start == start)
}

// Killed reports whether a process that lives will run nothing more: it was killed, or ends,
// and waits in the kernel. It is false where the system does not tell.
func Killed(pid int) bool {
	e, err := lookup(pid)
	return err == nil && (e.exiting || killPending(pid))
}

// Marked returns this user's processes that were started with key=value in
// their environment, without zombies.
func Marked(key, value string) []int {
	var pids []int
	for _, e := range table() {
		if e.mine && !e.zombie && hasEnv(e.pid, key, value) {
			pids = append(pids, e.pid)
		}
	}
	return pids
}

// HasEnv reports whether pid was started with key=value in its environment.
func HasEnv(pid int, key, value string) bool { return hasEnv(pid, key, value) }

// Descendants returns the children of pid, their children and so on, without
// zombies and without pid itself.
func Descendants(pid int) []int {
	all := table()
	found := map[int]bool{pid: true}
	closure(all, found)
	delete(found, pid)
	return living(all, found)
}

// Tree returns all processes that belong to the one that was started as pid
// with key=value in its environment: those marked, those in the session that
// it leads, and the descendants of either. Zombies and this process are left
// out. With owned false the number may have been used again, and only marked
// processes count as roots; it is true as long as pid has not been waited for.
func Tree(pid int, owned bool, key, value string) []int {
	all := table()
	found := map[int]bool{}
	for _, e := range all {
		switch {
		case owned && pid > 0 && (e.pid == pid || e.session == pid):
			found[e.pid] = true
		case e.mine && !e.zombie && hasEnv(e.pid, key, value):
			found[e.pid] = true
		}
	}
	delete(found, os.Getpid())
	if len(found) == 0 {
		return nil
	}
	closure(all, found)
	delete(found, os.Getpid())
	return living(all, found)
}

// closure adds the children of what is in found.
func closure(all []entry, found map[int]bool) {
	children := make(map[int][]int, len(all))
	for _, e := range all {
		children[e.ppid] = append(children[e.ppid], e.pid)
	}
	queue := make([]int, 0, len(found))
	for pid := range found {
		queue = append(queue, pid)
	}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, c := range children[pid] {
			if !found[c] {
				found[c] = true
				queue = append(queue, c)
			}
		}
	}
}

func living(all []entry, found map[int]bool) []int {
	var pids []int
	for _, e := range all {
		if found[e.pid] && !e.zombie {
			pids = append(pids, e.pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// Grace is how long processes have between TERM and KILL where nobody says
// otherwise.
const Grace = 10 * time.Second

// End asks the processes that find returns to terminate, waits up to grace for
// them and kills what is left, until find returns none. It returns the context's
// error if that comes first.
func End(ctx context.Context, find func() []int, grace time.Duration) error {
	var e Ending
	e.Within(grace)
	return e.Run(ctx, find)
}

// An Ending ends a set of processes, however many callers run it at the same time
// or one after the other: each process is asked to terminate once, and what is left
// when the grace is over is killed. The zero value is ready to use.
type Ending struct {
	mu       sync.Mutex
	asked    map[int]bool
	deadline time.Time
	promised bool // deadline was set by Within
	count    int  // processes asked or killed so far, but for root
	root     int
}

// Root says which process the others come from: it is ended like them and not
// counted.
func (e *Ending) Root(pid int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.root = pid
}

// Within gives the processes grace from now, or what is left of an earlier call's
// if that is less: an end that was asked for is not put off.
func (e *Ending) Within(grace time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if until := time.Now().Add(grace); !e.promised || until.Before(e.deadline) {
		e.deadline, e.promised = until, true
	}
}

// Default gives the processes grace from now unless a grace is set already. A later
// Within replaces it.
func (e *Ending) Default(grace time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deadline.IsZero() {
		e.deadline = time.Now().Add(grace)
	}
}

// Count is how many processes besides the root were asked to terminate, or killed,
// so far.
func (e *Ending) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count
}

// Run asks and kills until find returns no process and those that it returned have given
// back what they had, or returns the context's error.
// What a process that was asked starts to end well, for instance to copy what it
// saved, is asked only once that process is gone.
func (e *Ending) Run(ctx context.Context, find func() []int) error {
	found := map[int]bool{}
	var over time.Time // when find returned none for the first time
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		pids := find()
		for _, pid := range pids {
			found[pid] = true
		}
		if len(pids) == 0 {
			if over.IsZero() {
				over = time.Now()
			}
			if !exiting(found) || time.Since(over) > Grace { // a device may hold one up for ever
				return nil
			}
		}
		e.step(pids, time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// exiting reports whether one of these processes is about to be gone: what goes by its
// environment does not find it any more.
func exiting(pids map[int]bool) bool {
	for pid := range pids {
		if e, err := lookup(pid); err == nil && e.exiting && !e.zombie {
			return true
		}
	}
	return false
}

// step does what is due to the processes that live now.
func (e *Ending) step(pids []int, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[int]bool{}
	}
	// The number of a process that is gone may be used again during a long grace. One that
	// ended since it was found is still the one that was asked.
	maps.DeleteFunc(e.asked, func(pid int, _ bool) bool { return !slices.Contains(pids, pid) && !Alive(pid, "") })
	hard := !now.Before(e.deadline)
	var due []int
	for _, pid := range pids {
		if hard || !e.asked[pid] && !helps(pid, pids, e.asked) {
			due = append(due, pid)
		}
	}
	for _, pid := range due {
		if !e.asked[pid] {
			e.asked[pid] = true
			if pid != e.root {
				e.count++
			}
		}
		if hard {
			kill(pid)
		} else {
			terminate(pid)
		}
	}
}

// helps reports whether a process is the child of one that lives and was asked to
// terminate at an earlier look, when the child was not there yet.
func helps(pid int, living []int, asked map[int]bool) bool {
	e, err := lookup(pid)
	return err == nil && asked[e.ppid] && slices.Contains(living, e.ppid)
}

// Wait returns when the process pid with this StartTime has exited, or with
// the context's error. It does not reap: a child becomes a zombie and keeps
// its number until its parent waits for it.
func Wait(ctx context.Context, pid int, start string) error {
	err := waitExit(ctx, pid, start)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	for Alive(pid, start) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// BootID names the time since the machine (or the container) was started; it
// changes with every boot. It is empty if the system does not tell.
func BootID() string { return bootID() }
