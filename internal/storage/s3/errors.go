package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// An op is a call, for errors: what it needs and what it was about.
type op struct {
	permission  string
	key, upload string
	conditional bool // it had IfMatch or IfAbsent
}

var (
	expecting = lazyregexp.New(`expecting '([a-z0-9-]+)'`)
	caller    = lazyregexp.New(`User: (arn:\S+) is not authorized to perform: (\S+)`)
)

// codes of errors that say that keys have run out.
var expiredCodes = map[string]bool{"ExpiredToken": true, "ExpiredTokenException": true, "TokenRefreshRequired": true, "RequestExpired": true}

// expired reports whether newer keys may help. The answer to HEAD has no words.
func expired(err error) bool {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && answer.Response != nil && answer.Response.Request != nil &&
		answer.Response.Request.Method == http.MethodHead && answer.HTTPStatusCode() == http.StatusBadRequest {
		return true
	}
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && expiredCodes[api.ErrorCode()]
}

// refused translates an error of the SDK.
func (b *Bucket) refused(ctx context.Context, o op, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*storage.CredentialsError](err); ok {
		return err
	}
	code, message, status := "", "", 0
	var header http.Header
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && answer.Response != nil {
		status, header = answer.HTTPStatusCode(), answer.Response.Header
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	if code == "" && cutShort(err) {
		// Without its words, the answer does not say what it is about.
		return &storage.UnavailableError{Bucket: b.at, Err: fmt.Errorf("the answer broke off: %w", cause(err))}
	}
	if status == 0 && code == "" {
		if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			return fmt.Errorf("connecting to %s: %w", b.at.Store, cert)
		}
		if invalid, ok := errors.AsType[*smithy.InvalidParamsError](err); ok {
			return &storage.InvalidError{Bucket: b.at, Key: o.key, Err: invalid}
		}
		return &storage.UnavailableError{Bucket: b.at, Err: cause(err)}
	}
	return b.classify(o, refusal{code, message, status, header})
}

// cutShort reports whether the connection broke off within the body of an answer.
func cutShort(err error) bool {
	if _, ok := errors.AsType[*smithy.DeserializationError](err); !ok {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF)
}

// cause is what is wrong with a connection, without the SDK's words around it.
func cause(err error) error {
	for {
		if send, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok && send.Err != nil {
			err = send.Err
			continue
		}
		return err
	}
}

// A refusal is what the store answered.
type refusal struct {
	code, message string
	status        int
	header        http.Header
}

func (r refusal) Error() string {
	switch {
	case r.message != "" && r.code != "" && r.message != r.code:
		return r.message + " (" + r.code + ")"
	case r.code != "":
		return r.code
	}
	return fmt.Sprintf("HTTP %d", r.status)
}

// classify makes an error of an answer.
func (b *Bucket) classify(o op, r refusal) error {
	switch r.code {
	case "NoSuchBucket":
		return &storage.NotFoundError{Bucket: b.at, Err: r}
	case "NoSuchKey", "NoSuchVersion":
		return b.missing(o, r)
	case "NoSuchUpload":
		return &storage.NotFoundError{Bucket: b.at, Key: o.key, Upload: o.upload, Err: r}
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "UnauthorizedAccess", "InvalidObjectState", "Forbidden", "InvalidPayer":
		return b.denied(o, r)
	case "MethodNotAllowed":
		return b.notAllowed(o, r)
	case "PreconditionFailed":
		return &storage.ConflictError{Bucket: b.at, Key: o.key, Err: r}
	case "BucketAlreadyExists":
		return &storage.BucketExistsError{Bucket: b.at, Err: r}
	case "BucketNotEmpty":
		return &storage.BucketNotEmptyError{Bucket: b.at, Err: r}
	case "PermanentRedirect", "TemporaryRedirect", "Redirect", "IllegalLocationConstraintException", "MovedPermanently":
		return &storage.WrongRegionError{Bucket: b.at, Region: right(r), Err: r}
	case "AuthorizationHeaderMalformed":
		if right(r) != "" {
			return &storage.WrongRegionError{Bucket: b.at, Region: right(r), Err: r}
		}
		return b.member.noKeys(r)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "NotSignedUp", "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return b.member.noKeys(r)
	case "RequestTimeTooSkewed":
		return &storage.CredentialsError{Store: b.at.Store, Err: r, Fix: "set the clock of this machine"}
	case "SlowDown", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "RequestLimitExceeded", "BandwidthLimitExceeded", "TooManyRequests", "SlowDownRead", "SlowDownWrite":
		return &storage.ThrottledError{Bucket: b.at, After: rest.After(r.header), Err: r}
	case "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException", "OperationAborted", "ConditionalRequestConflict", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "XMinioServerNotInitialized":
		return &storage.UnavailableError{Bucket: b.at, Err: r}
	case "NotImplemented":
		return &storage.UnsupportedError{Store: b.at.Store, Op: "do this", Err: r}
	}
	switch {
	case r.status == http.StatusNotFound:
		return b.missing(o, r)
	case r.status == http.StatusForbidden:
		return b.denied(o, r)
	case r.status == http.StatusMethodNotAllowed:
		return b.notAllowed(o, r)
	case r.status == http.StatusUnauthorized:
		return b.member.noKeys(r)
	case r.status == http.StatusPreconditionFailed, r.status == http.StatusConflict && o.conditional:
		return &storage.ConflictError{Bucket: b.at, Key: o.key, Err: r}
	case r.status == http.StatusMovedPermanently, r.status == http.StatusTemporaryRedirect:
		return &storage.WrongRegionError{Bucket: b.at, Region: right(r), Err: r}
	case r.status == http.StatusTooManyRequests:
		return &storage.ThrottledError{Bucket: b.at, After: rest.After(r.header), Err: r}
	case r.status == http.StatusNotImplemented:
		return &storage.UnsupportedError{Store: b.at.Store, Op: "do this", Err: r}
	case r.status == http.StatusBadRequest && right(r) != "" && right(r) != b.at.Region: // the answer to HEAD has no code
		return &storage.WrongRegionError{Bucket: b.at, Region: right(r), Err: r}
	case r.status >= 500, r.status == http.StatusRequestTimeout, r.status < 400:
		return &storage.UnavailableError{Bucket: b.at, Err: r}
	}
	return &storage.InvalidError{Bucket: b.at, Key: o.key, Err: r}
}

// missing is about the object, or the bucket where the call is about that.
func (b *Bucket) missing(o op, r refusal) error {
	if o.conditional { // on an object that is not there any more
		return &storage.ConflictError{Bucket: b.at, Key: o.key, Err: r}
	}
	return &storage.NotFoundError{Bucket: b.at, Key: o.key, Err: r}
}

// notAllowed is about a delete marker, which cannot be read, or about a call that
// the store has not.
func (b *Bucket) notAllowed(o op, r refusal) error {
	if r.header.Get("X-Amz-Delete-Marker") == "true" {
		return b.missing(o, r)
	}
	return &storage.UnsupportedError{Store: b.at.Store, Op: "do this", Err: r}
}

func (b *Bucket) denied(o op, r refusal) error {
	e := &storage.DeniedError{Bucket: b.at, Key: o.key, Permission: o.permission, Account: b.keys.account(), Err: r}
	if m := caller.FindStringSubmatch(r.message); m != nil {
		e.Account, e.Permission = m[1], m[2]
	}
	return e
}

// right is the bucket's region, where the answer says it.
func right(r refusal) string {
	if region := r.header.Get("X-Amz-Bucket-Region"); region != "" {
		return region
	}
	if m := expecting.FindStringSubmatch(r.message); m != nil {
		return m[1]
	}
	return ""
}
