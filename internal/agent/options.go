// Package agent runs on every node of a cluster: it queues and starts jobs,
// supervises their processes, keeps their logs, and gives the machines back
// when nobody uses them.
//
// The agent of the head node owns the queue, a bbolt file: small, pure Go, one
// writer, and safe against a crash at any instruction. A job is in it before
// Submit answers, every change of its status goes through one table, and an end
// is written once. The head decides what starts (plan, a pure function) and
// drives the ranks of a job on its own node and, over mutual TLS, on the others.
//
// Processes do not depend on the agent. A small shell script around each rank
// notes its number and exit code in files, and output goes straight into a
// file, so that jobs run on when the agent dies; the next one adopts them:
//
//	ranks/<key>/   script, pid, exit (and ended, output) of one rank   rank.go
//	               keep: what it leaves runs on; kept: it does, though its job is over
//	jobs.db        queue, cluster, autostop                            queue.go
//	logs/<id>      what of the ranks' output is in run.log already     joblog.go
package agent

import (
	"context"
	"log/slog"
	"time"
)

// Machine is the machine that an agent runs on, as its cloud sees it.
type Machine interface {
	// Stop turns the machine off and keeps its disk. It may not return.
	Stop(ctx context.Context) error
	// Terminate gives the machine back for good. It may not return.
	Terminate(ctx context.Context) error
}

// Options say where and as what an agent runs. Home and Listen are required.
type Options struct {
	Home    string  // of the user whose jobs these are
	Listen  string  // ip:port
	Dir     string  // "": Home/.sky/agent
	Machine Machine // nil: the agent cannot stop its machine
	// SharedMachine says that the machine is somebody's own and no node by itself: files are
	// never written with more rights than the user has.
	SharedMachine bool

	Version string
	BuildID string
	Logger  *slog.Logger     // nil: silent
	Now     func() time.Time // nil: time.Now

	endGrace    time.Duration // between TERM and KILL; tests have no patience
	waitPoll    time.Duration // see the constant; 0: that
	mountsGone  time.Duration // see the constant; 0: that
	noticeEvery time.Duration // between questions for notices; 0: see the constants
	endingDir   string        // "": agentapi.EndingDir
}
