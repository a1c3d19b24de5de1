//go:build unix

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// ranks supervises the ranks that run on this node, for whichever head asks.
type ranks struct {
	ctx   context.Context // of the agent: supervision ends with it, processes do not
	home  string
	dir   string // one folder for each rank
	lib   string // the scripts
	sh    string // runs our scripts
	shell string // runs tasks' scripts: bash, or sh where there is none
	log   *slog.Logger
	grace time.Duration // of what a rank leaves behind, between TERM and KILL
	watch *watcher
	// ready is an error while a rank may not start that needs the mounts; note is for its log.
	ready func(context.Context, *rankSpec) (note string, err error)
	wg    sync.WaitGroup

	mu   sync.Mutex
	live map[string]*liveRank
	over map[string]time.Time // ranks that must not start any more, and since when
}

// overKept is for how long a node remembers that a rank is over. A call that its head
// gave up on, or that was on its way when the head died, may come after those that
// ended and forgot the rank, but not later than that.
const overKept = 10 * time.Minute

// errRankOver refuses to start what was ended and forgotten.
var errRankOver = invalid("the rank has been ended already")

// ends notes that a rank must not start any more.
func (r *ranks) ends(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.over, func(_ string, at time.Time) bool { return now.Sub(at) > overKept })
	r.over[key] = now
}

func (r *ranks) isOver(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, over := r.over[key]
	return over
}

// liveRank is a rank that somebody waits for.
type liveRank struct {
	starting sync.Mutex    // held while it is being started
	exited   chan struct{} // closed when its exit code is known; what it left behind may still run; nil: not supervised
	code     rankStatus    // valid once exited is closed
	done     chan struct{} // closed when its whole tree is gone; nil: not supervised
	status   rankStatus    // valid once done is closed
	ending   proc.Ending   // of its tree, whoever asks for that
}

// exit notes how the rank's own process ended, the first time that it is known.
// Only its supervisor calls it.
func (l *liveRank) exit(st rankStatus) {
	select {
	case <-l.exited:
	default:
		l.code = st
		close(l.exited)
	}
}

func newRanks(ctx context.Context, home, dir string, grace time.Duration, log *slog.Logger, w *watcher) (*ranks, error) {
	r := &ranks{ctx: ctx, home: home, grace: grace, dir: filepath.Join(dir, "ranks"), lib: filepath.Join(dir, "lib"), log: log, watch: w, live: map[string]*liveRank{}, over: map[string]time.Time{}}
	for _, d := range []string{r.dir, r.lib} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"wrapper.sh", "prologue.sh", "bashrc.sh"} {
		data, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			return nil, err
		}
		if err := wholefile.Write(filepath.Join(r.lib, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	r.sh = cmp.Or(found("sh"), "/bin/sh")
	r.shell = cmp.Or(found("bash"), r.sh) // small images have no bash
	return r, nil
}

// found is where a program of that name is, or "".
func found(name string) string {
	path, _ := exec.LookPath(name)
	return path
}

// keyPattern keeps keys usable as file names and in an environment.
var keyPattern = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,150}$`)

func (r *ranks) folder(key string) (rankDir, error) {
	if !keyPattern.MatchString(key) {
		return "", errors.New("invalid rank key")
	}
	return rankDir(filepath.Join(r.dir, key)), nil
}

// output is where the output of a rank goes that does not say where.
func (r *ranks) output(key string) (string, error) {
	d, err := r.folder(key)
	if err != nil {
		return "", err
	}
	return d.file("output"), nil
}

func (r *ranks) entry(key string) *liveRank {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.live[key]
	if l == nil {
		l = &liveRank{}
		r.live[key] = l
	}
	return l
}

// prepare checks that the rank can be started here and writes its files.
func (r *ranks) prepare(s *rankSpec) error {
	d, err := r.folder(s.Key)
	if err != nil {
		return err
	}
	l := r.entry(s.Key)
	l.starting.Lock()
	defer l.starting.Unlock()
	if r.isOver(s.Key) {
		return errRankOver
	}
	return d.prepare(s)
}

// start starts the rank unless it has been started before, in this or an
// earlier life of the agent; then it is supervised again. An error means that
// nothing was decided and the call may be repeated.
func (r *ranks) start(s *rankSpec) (rankStatus, error) {
	d, err := r.folder(s.Key)
	if err != nil {
		return rankStatus{}, err
	}
	l := r.entry(s.Key)
	l.starting.Lock()
	defer l.starting.Unlock()
	if l.done != nil {
		return r.current(d, l), nil
	}
	if r.isOver(s.Key) {
		return rankStatus{}, errRankOver
	}
	st := d.status()
	switch {
	case st.State != rankAbsent:
		r.supervise(d, l, st.PID, nil)
		return st, nil
	case s.Known:
		return rankStatus{State: rankLost, Code: codeLost, Reason: "the node has lost track of it"}, nil
	}
	note := ""
	if s.Mounts && r.ready != nil {
		if note, err = r.ready(r.ctx, s); err != nil {
			return rankStatus{}, err
		}
	}
	if s.Keep {
		r.endKept(s.Key)
	}
	if err := d.prepare(s); err != nil {
		return rankStatus{}, err
	}
	if s.Output == "" {
		s.Output = d.file("output")
	}
	cmd, err := d.launch(s, r.home, r.sh, r.shell, r.lib)
	if err != nil {
		if noSpace(err) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE) {
			return rankStatus{}, err
		}
		if err2 := d.record(codeNoExec); err2 != nil {
			return rankStatus{}, err2
		}
		return rankStatus{State: rankExited, Code: codeNoExec, Reason: err.Error()}, nil
	}
	r.supervise(d, l, cmd.Process.Pid, cmd)
	return rankStatus{State: rankRunning, PID: cmd.Process.Pid, Note: note}, nil
}

// current is the status of a supervised rank: it runs until its tree is gone.
func (r *ranks) current(d rankDir, l *liveRank) rankStatus {
	select {
	case <-l.done:
		return l.status
	default:
	}
	st := d.status()
	if st.over() {
		st = rankStatus{State: rankRunning, PID: st.PID}
	}
	return st
}

// supervise waits for the rank in the background: until its process has exited
// and all it left behind is gone. cmd is nil for a rank of an earlier agent.
func (r *ranks) supervise(d rankDir, l *liveRank, pid int, cmd *exec.Cmd) {
	l.exited, l.done = make(chan struct{}), make(chan struct{})
	l.ending.Root(pid) // it may live for a moment after it has noted its exit code
	r.wg.Go(func() {
		st, err := r.waitProcessTree(d, l, pid, cmd)
		if err != nil {
			return // the agent ends; the rank goes on
		}
		l.status = st
		l.exit(st)
		close(l.done)
		r.watch.wake(d.file("output"))
	})
}

// waitProcessTree waits until a rank's process has exited, which it notes in l as soon as
// the wrapper has written the code, and ends what that left behind, unless the rank
// is to keep it: to find it may take seconds on a busy machine. What a rank leaves
// that is being ended has the grace that was asked for: its shell is mostly gone
// long before the programs that the shell ran.
func (r *ranks) waitProcessTree(d rankDir, l *liveRank, pid int, cmd *exec.Cmd) (rankStatus, error) {
	noted := func() {
		if st := d.status(); st.State == rankExited {
			l.exit(st)
		}
	}
	if cmd != nil {
		if start, err := proc.StartTime(pid); err == nil {
			_ = proc.Wait(r.ctx, pid, start) // what follows looks for itself
		}
		if r.ctx.Err() != nil {
			return rankStatus{}, r.ctx.Err()
		}
		noted()
		// It is a zombie now: its number is not used again before we reap it.
		if err := r.endLeftovers(d, l, d.tree(pid, true)); err != nil {
			return rankStatus{}, err
		}
		_ = cmd.Wait()
		if _, ok := d.number("exit"); !ok {
			if owner, _ := d.number("pid"); owner == pid {
				if err := d.record(exitCode(cmd.ProcessState)); err != nil {
					r.log.Warn("exit code not written", "rank", d.key(), "err", err)
					st := rankStatus{State: rankExited, PID: pid, Code: exitCode(cmd.ProcessState)}
					if ended := d.status(); ended.State == rankExited {
						st.Code = ended.Code
					}
					return st, nil
				}
			}
		}
	}
	// Of an earlier agent, or such a one's start came first.
	if owner, ok := d.number("pid"); ok && d.alive(owner) {
		if start, err := proc.StartTime(owner); err == nil && d.alive(owner) {
			_ = proc.Wait(r.ctx, owner, start)
		}
		if r.ctx.Err() != nil {
			return rankStatus{}, r.ctx.Err()
		}
		cmd = nil
	}
	noted()
	if cmd == nil {
		if err := r.endLeftovers(d, l, d.tree(0, false)); err != nil {
			return rankStatus{}, err
		}
	}
	st := d.status()
	if !st.Ended {
		st.Leftovers = l.ending.Count()
	}
	if st.State == rankAbsent { // never noted its number: it did not run the script
		st = rankStatus{State: rankLost, PID: pid, Code: codeLost, Reason: "its process ended before it began"}
	}
	return st, nil
}

// lastLines is for how long what a rank leaves behind is not disturbed: a program at
// the end of a pipe still writes down what the rank printed last, and ends then.
const lastLines = 200 * time.Millisecond

// endLeftovers ends what a rank whose own process is gone has left behind.
func (r *ranks) endLeftovers(d rankDir, l *liveRank, find func() []int) error {
	if d.keeps() {
		return nil
	}
	if !d.status().Ended {
		for end := time.Now().Add(lastLines); len(find()) > 0 && time.Now().Before(end) && r.ctx.Err() == nil; {
			time.Sleep(lastLines / 20)
		}
	}
	l.ending.Default(r.grace)
	return l.ending.Run(r.ctx, find)
}

func exitCode(ps *os.ProcessState) int {
	if ws, ok := ps.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ps.ExitCode()
}

// wait returns when the rank and all its processes are gone, or the status it
// has when the context ends (then with the context's error).
func (r *ranks) wait(ctx context.Context, key string) (rankStatus, error) {
	return r.await(ctx, key, false)
}

// waitExit is wait for the rank's own process alone: its exit code is certain, and
// processes that it left behind are still being ended.
func (r *ranks) waitExit(ctx context.Context, key string) (rankStatus, error) {
	return r.await(ctx, key, true)
}

func (r *ranks) await(ctx context.Context, key string, exit bool) (rankStatus, error) {
	d, err := r.folder(key)
	if err != nil {
		return rankStatus{}, err
	}
	l := r.entry(key)
	l.starting.Lock()
	if l.done == nil {
		st := d.status()
		if st.State == rankAbsent {
			l.starting.Unlock()
			return st, nil
		}
		r.supervise(d, l, st.PID, nil)
	}
	done, exited := l.done, l.exited
	l.starting.Unlock()
	if !exit {
		exited = nil
	}
	select {
	case <-exited:
		return l.code, nil
	case <-done:
		return l.status, nil
	case <-ctx.Done():
		return r.current(d, l), ctx.Err()
	case <-r.ctx.Done():
		return r.current(d, l), r.ctx.Err()
	}
}

// end ends the rank and returns when its processes are gone. A rank that had
// already exited keeps its code, and what it is to keep.
func (r *ranks) end(ctx context.Context, key string, grace time.Duration) (rankStatus, error) {
	d, err := r.folder(key)
	if err != nil {
		return rankStatus{}, err
	}
	l := r.entry(key)
	l.starting.Lock()
	st := d.status()
	if l.done != nil {
		select {
		case <-l.done:
			l.starting.Unlock()
			return l.status, nil
		case <-l.exited: // what it left behind is being ended
			l.ending.Within(grace)
			l.starting.Unlock()
			return r.wait(ctx, key)
		default:
		}
	}
	if st.State == rankAbsent && l.done == nil {
		// An agent that died while it started the rank may have left a process
		// that has not yet come so far as to create this file.
		f, err := os.OpenFile(d.file("pid"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			r.ends(key)
			l.starting.Unlock()
			f.Close()
			return st, nil
		}
		st = d.status()
	}
	if !st.over() {
		if err := os.WriteFile(d.file("ended"), nil, 0o600); err != nil && !noSpace(err) {
			l.starting.Unlock()
			return rankStatus{}, err
		}
	}
	l.ending.Within(grace)
	if l.done == nil {
		r.supervise(d, l, st.PID, nil)
	}
	l.starting.Unlock()
	if !d.keeps() {
		owned := proc.Alive(st.PID, "") && d.alive(st.PID)
		if err := l.ending.Run(ctx, d.tree(st.PID, owned)); err != nil {
			return rankStatus{}, err
		}
	}
	return r.wait(ctx, key)
}

// forget removes what is kept of a rank whose processes are gone. One whose
// processes are to run on is remembered until they are ended.
func (r *ranks) forget(key string) error {
	d, err := r.folder(key)
	if err != nil {
		return err
	}
	if d.keeps() && len(d.tree(0, false)()) > 0 {
		r.ends(key)
		return os.WriteFile(d.file("kept"), nil, 0o600)
	}
	return r.remove(key)
}

// own makes a key, which others may use on this machine too, one of this node: a rank's
// processes are found by its key.
func (r *ranks) own(key string) string {
	return fmt.Sprintf("%s-%08x", key, crc32.ChecksumIEEE([]byte(r.dir)))
}

// remove removes what is kept of a rank.
func (r *ranks) remove(key string) error {
	d, err := r.folder(key)
	if err != nil {
		return err
	}
	l := r.entry(key)
	l.starting.Lock()
	defer l.starting.Unlock()
	r.ends(key)
	r.mu.Lock()
	delete(r.live, key)
	r.mu.Unlock()
	proc.RemoveCgroup(d.cgroup())
	return os.RemoveAll(string(d))
}

// endKept ends what earlier setups have left running, except those of jobs that are
// not over yet: one that starts now, next, takes their place.
func (r *ranks) endKept(next string) {
	names, err := os.ReadDir(r.dir)
	if err != nil {
		r.log.Warn("what earlier setups left is not ended", "err", err)
		return
	}
	var wg sync.WaitGroup
	for _, e := range names {
		d := rankDir(filepath.Join(r.dir, e.Name()))
		if _, err := os.Stat(d.file("kept")); err != nil || e.Name() == next {
			continue
		}
		wg.Go(func() {
			if err := r.endAndRemove(r.ctx, d, r.grace); err != nil {
				r.log.Warn("what an earlier setup left is not ended", "rank", d.key(), "err", err)
			}
		})
	}
	wg.Wait()
}

// endAndRemove ends all processes of a rank, also those that it is to keep, and
// removes it.
func (r *ranks) endAndRemove(ctx context.Context, d rankDir, grace time.Duration) error {
	if _, err := r.end(ctx, d.key(), grace); err != nil {
		return err
	}
	l := r.entry(d.key())
	l.ending.Within(grace)
	if err := l.ending.Run(ctx, d.tree(0, false)); err != nil {
		return err
	}
	return r.remove(d.key())
}

// running reports whether the rank's output may still grow.
func (r *ranks) running(key string) bool {
	d, err := r.folder(key)
	if err != nil {
		return false
	}
	r.mu.Lock()
	l := r.live[key]
	r.mu.Unlock()
	if l != nil {
		l.starting.Lock()
		done := l.done
		l.starting.Unlock()
		if done != nil {
			select {
			case <-done:
				return false
			default:
				return true
			}
		}
	}
	return d.status().State == rankRunning
}

// endAll ends and forgets all ranks on this node.
func (r *ranks) endAll(ctx context.Context, grace time.Duration) error {
	names, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(names))
	for i, e := range names {
		wg.Go(func() { errs[i] = r.endAndRemove(ctx, rankDir(filepath.Join(r.dir, e.Name())), grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
