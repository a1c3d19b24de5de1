package sshconn

import "fmt"

// An UnreachableError means that there was no connection, or that it broke.
// Whether what was asked for has happened is unknown.
type UnreachableError struct {
	Host string
	Step string // what was being done
	Err  error
}

// An AuthError means that the host refuses the login.
type AuthError struct {
	User, Host string
	Tried      string // which keys and passwords
	Err        error
}

// A HostKeyError means that a host shows another key than the one on record.
type HostKeyError struct {
	Host     string
	Got      string // fingerprint
	Want     string // fingerprints on record
	Recorded string // where, and since when it cannot be right any more: what to do
}

// A NoShellError means that the login works and no commands can be run.
type NoShellError struct {
	Host string
	Said string // what came instead
}

// A NoSpaceError means that the host's disk is full.
type NoSpaceError struct {
	Host string
	Said string
}

// An ExitError is a command that ended with a code other than 0.
type ExitError struct {
	Code   int // -1: ended by a signal
	Stderr string
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Host, e.Step, e.Err) }
func (e *UnreachableError) Unwrap() error { return e.Err }

func (e *AuthError) Error() string {
	user := e.User
	if user == "" {
		user = "no user"
	}
	return fmt.Sprintf("%s refuses the login as %s; tried: %s. Put the right key into its ~/.ssh/authorized_keys, or name another user or key", e.Host, user, e.Tried)
}
func (e *AuthError) Unwrap() error { return e.Err }

func (e *HostKeyError) Error() string {
	return fmt.Sprintf("the host key of %s has changed: it shows %s, on record is %s (%s)", e.Host, e.Got, e.Want, e.Recorded)
}

func (e *NoShellError) Error() string {
	said := e.Said
	if said == "" {
		said = "nothing"
	}
	return fmt.Sprintf("%s lets us in and runs no commands; it said: %s. The user needs a login shell", e.Host, said)
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("the disk of %s is full: %s. Make room there, or use a machine with a larger disk", e.Host, e.Said)
}

func (e *ExitError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return fmt.Sprintf("exit code %d: %s", e.Code, e.Stderr)
}
