//go:build linux

package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/storage"
)

// An Error is what a call answers, with a reason for the log.
type Error struct {
	Errno  syscall.Errno
	Reason string
	Err    error
}

func (e *Error) Error() string {
	text := e.Reason
	if text == "" {
		text = e.Errno.Error()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is understand the number.
func (e *Error) Is(target error) bool {
	return target == e.Errno || e.Errno.Is(target)
}

// Refuse makes an error with a reason.
func Refuse(errno syscall.Errno, format string, args ...any) error {
	return &Error{Errno: errno, Reason: fmt.Sprintf(format, args...)}
}

// Errno is the number of an error.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Errno
	}
	if e, ok := errors.AsType[*storage.NotFoundError](err); ok {
		if e.Key != "" && e.Upload == "" {
			return syscall.ENOENT
		}
		return syscall.EIO // the bucket is gone
	}
	if _, ok := errors.AsType[*storage.DeniedError](err); ok {
		return syscall.EACCES
	}
	if _, ok := errors.AsType[*storage.CredentialsError](err); ok {
		return syscall.EACCES
	}
	if _, ok := errors.AsType[*storage.ConflictError](err); ok {
		return syscall.EIO
	}
	if e, ok := errors.AsType[*storage.UnsupportedError](err); ok && e != nil {
		return syscall.ENOTSUP
	}
	if _, ok := errors.AsType[*storage.InvalidError](err); ok {
		return syscall.EINVAL
	}
	if diskspace.Full(err) {
		return syscall.ENOSPC
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, fs.ErrExist):
		return syscall.EEXIST
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT
	}
	return syscall.EIO
}

// Expected reports whether an error is an ordinary answer, which is not worth a line in
// the log.
func Expected(err error) bool {
	switch Errno(err) {
	case syscall.ENOENT, syscall.EEXIST, syscall.ENOTEMPTY, syscall.EISDIR, syscall.ENOTDIR, syscall.EINTR, syscall.EBADF, syscall.ENODATA:
		return true
	}
	return false
}
