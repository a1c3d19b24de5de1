package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// callbackTail is how much of a callback's output is shown in the job's log.
const callbackTail = 16 << 10

// mostCallback is how much output of one run of a callback is kept.
const mostCallback = 1 << 20

// pathEnvironment is all that a runner has of the server's environment.
func pathEnvironment() []string {
	return []string{"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin")}
}

// homeEnvironment is all that a callback on its owner's machine has of the
// server's environment.
func homeEnvironment() []string {
	home, _ := os.UserHomeDir()
	return append(pathEnvironment(), "HOME="+home)
}

// here runs a callback on the server's machine: program with the script's file as
// its last argument, in a process group of its own, and with that environment and
// the callback's alone.
func (b *callbacks) here(ctx context.Context, task int, cb callback, program, env []string) (output, said string) {
	dir := b.c.m.jobDir(b.c.id)
	out, err := b.script(dir, task, cb)
	if err != nil {
		return "", "not run: " + err.Error()
	}
	defer out.Close()
	began, _ := out.Seek(0, io.SeekEnd)
	words := append(slices.Clone(program), scriptFile(dir, task))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	for k, v := range cb.env {
		env = append(env, k+"="+v)
	}
	log := &callbackLog{f: out, left: mostCallback, room: func(n int64) error { return b.c.m.room(b.c.id, n) }}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, log, log
	cmd.WaitDelay = time.Second
	ownGroup(cmd)
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it has ended; what it left in the background is not heard any more
	}
	log.end()
	if size, serr := out.Seek(0, io.SeekEnd); serr == nil {
		from := max(began, size-callbackTail)
		text := make([]byte, size-from)
		n, _ := out.ReadAt(text, from)
		output = string(text[:n])
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return output, fmt.Sprintf("ended: it ran for more than %v", callbackLimit)
	case exited:
		return output, ran(exit.ExitCode())
	case err != nil:
		return output, "not run: " + err.Error()
	}
	return output, ran(0)
}

// callbackLog adds what a callback prints to its log, as much as is kept and as there
// is room for. It is one writer for both streams, so that os/exec writes one at a time.
type callbackLog struct {
	f       *os.File
	left    int64 // how much more is kept
	room    func(n int64) error
	dropped int64
}

// Write never fails: a callback goes on without a log.
func (l *callbackLog) Write(p []byte) (int, error) {
	b := p[:min(int64(len(p)), l.left)]
	if l.dropped > 0 || len(b) > 0 && l.room(int64(len(b))) != nil {
		b = nil
	}
	n, _ := l.f.Write(b)
	l.left -= int64(n)
	l.dropped += int64(len(p) - n)
	return len(p), nil
}

// end says what is missing.
func (l *callbackLog) end() {
	if l.dropped > 0 {
		fmt.Fprintf(l.f, "\n[%d bytes more were not kept.]\n", l.dropped)
	}
}

func scriptFile(dir string, task int) string {
	return filepath.Join(dir, fmt.Sprintf("callback-%d.sh", task))
}

// script writes a callback's script, and opens the log that its output is added
// to. As a file: the script may hold what must not be seen in a list of processes.
func (b *callbacks) script(dir string, task int, cb callback) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(scriptFile(dir, task), []byte(cb.script), 0o600); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, fmt.Sprintf("callback-%d.log", task)), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
}
