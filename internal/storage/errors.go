package storage

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A NotFoundError means that a bucket, an object or an upload does not exist.
type NotFoundError struct {
	Bucket Location
	Key    string // "": the bucket itself
	Upload string // the upload, when the upload is what is missing
	Err    error
}

func (e *NotFoundError) Error() string {
	switch {
	case e.Upload != "":
		return fmt.Sprintf("the upload of %s has ended, or never began", e.Bucket.At(e.Key))
	case e.Key != "":
		return fmt.Sprintf("%s does not exist", e.Bucket.At(e.Key))
	}
	return fmt.Sprintf("the bucket %s does not exist", e.Bucket)
}
func (e *NotFoundError) Unwrap() error { return e.Err }

// A DeniedError means that the account may not do this.
type DeniedError struct {
	Bucket     Location
	Key        string
	Permission string // what is missing, in the store's words, such as "s3:PutObject"
	Account    string // whose credentials were used, as far as it is known
	Err        error
}

func (e *DeniedError) Error() string {
	who := "these credentials may not"
	if e.Account != "" {
		who = e.Account + " may not"
	}
	text := fmt.Sprintf("%s use %s", who, e.Bucket.At(e.Key))
	if e.Permission != "" {
		text += ": grant " + e.Permission
	}
	return withCause(text, e.Err)
}
func (e *DeniedError) Unwrap() error { return e.Err }

// A ConflictError means that a condition did not hold: the object exists, does
// not exist any more, or has other content; or somebody else is changing it.
type ConflictError struct {
	Bucket Location
	Key    string
	Err    error
}

func (e *ConflictError) Error() string {
	return withCause(fmt.Sprintf("%s was changed by somebody else", e.Bucket.At(e.Key)), e.Err)
}
func (e *ConflictError) Unwrap() error { return e.Err }

// A WrongRegionError means that the bucket answers in another region.
type WrongRegionError struct {
	Bucket Location
	Region string // the right one; "" where the store does not say
	Err    error
}

func (e *WrongRegionError) Error() string {
	if e.Region == "" {
		return withCause(fmt.Sprintf("the bucket %s is in another region than %s", e.Bucket, e.Bucket.Region), e.Err)
	}
	return fmt.Sprintf("the bucket %s is in the region %s", e.Bucket, e.Region)
}
func (e *WrongRegionError) Unwrap() error { return e.Err }

// A ThrottledError means that the store wants fewer requests for now.
type ThrottledError struct {
	Bucket Location
	After  time.Duration // how long to wait; 0 where the store does not say
	Err    error
}

func (e *ThrottledError) Error() string {
	return withCause(fmt.Sprintf("%s asks for fewer requests", e.Bucket.Store), e.Err)
}
func (e *ThrottledError) Unwrap() error { return e.Err }

// A BucketExistsError means that the name belongs to somebody else.
type BucketExistsError struct {
	Bucket Location
	Err    error
}

func (e *BucketExistsError) Error() string {
	return fmt.Sprintf("a bucket %s exists and belongs to another account: choose another name", e.Bucket)
}
func (e *BucketExistsError) Unwrap() error { return e.Err }

// A BucketNotEmptyError means that a bucket cannot be deleted because something
// is in it.
type BucketNotEmptyError struct {
	Bucket Location
	Err    error
}

func (e *BucketNotEmptyError) Error() string {
	return fmt.Sprintf("the bucket %s is not empty", e.Bucket)
}
func (e *BucketNotEmptyError) Unwrap() error { return e.Err }

// A CredentialsError means that there are no credentials, or that the store does
// not take them.
type CredentialsError struct {
	Store Store
	Fix   string // what to do
	Err   error
}

func (e *CredentialsError) Error() string {
	text := withCause(fmt.Sprintf("no valid credentials for %s", e.Store), e.Err)
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}
func (e *CredentialsError) Unwrap() error { return e.Err }

// An UnavailableError means that the store could not be reached, answered that
// it has trouble, or broke off. The request may have had its effect.
type UnavailableError struct {
	Bucket Location
	Err    error
}

func (e *UnavailableError) Error() string {
	return withCause(fmt.Sprintf("%s cannot be reached", e.Bucket.Store), e.Err)
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// An UnsupportedError means that the store has no such call.
type UnsupportedError struct {
	Store Store
	Op    string // "create buckets"
	Err   error
}

func (e *UnsupportedError) Error() string {
	return withCause(fmt.Sprintf("%s cannot %s", e.Store, e.Op), e.Err)
}
func (e *UnsupportedError) Unwrap() error { return e.Err }

// An InvalidError means that the store refuses a request as it is: a name, a
// key, a range, a size.
type InvalidError struct {
	Bucket Location
	Key    string
	Err    error
}

func (e *InvalidError) Error() string {
	return withCause(fmt.Sprintf("%s was refused", e.Bucket.At(e.Key)), e.Err)
}
func (e *InvalidError) Unwrap() error { return e.Err }

// A RemoveError holds the objects that Remove could not delete.
type RemoveError struct {
	Failed []Failed
}

// Failed is one object and its error.
type Failed struct {
	ID
	Err error
}

func (e *RemoveError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d objects could not be deleted", len(e.Failed))
	for i, f := range e.Failed {
		if i == 3 {
			b.WriteString(", …")
			break
		}
		fmt.Fprintf(&b, ", %q: %v", f.Key, f.Err)
	}
	return b.String()
}

func (e *RemoveError) Unwrap() []error {
	var errs []error
	for _, f := range e.Failed {
		errs = append(errs, f.Err)
	}
	return errs
}

// Temporary reports whether the same request may succeed a moment later.
func Temporary(err error) bool {
	if removed, ok := errors.AsType[*RemoveError](err); ok {
		for _, f := range removed.Failed {
			if !Temporary(f.Err) {
				return false
			}
		}
		return true
	}
	if _, ok := errors.AsType[*ThrottledError](err); ok {
		return true
	}
	_, ok := errors.AsType[*UnavailableError](err)
	return ok
}

// withCause adds the store's own words.
func withCause(text string, err error) string {
	if err == nil {
		return text
	}
	return text + ": " + err.Error()
}
