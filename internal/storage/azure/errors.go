package azure

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// classify makes an error of an answer.
func (b *Bucket) classify(c rest.Call, r rest.Refusal) error {
	r.Code = r.Header.Get("X-Ms-Error-Code")
	var words struct{ Code, Message string }
	if xml.Unmarshal(bytes.TrimPrefix(r.Text, []byte("\ufeff")), &words) == nil {
		if r.Code == "" {
			r.Code = words.Code
		}
		r.Message, _, _ = strings.Cut(words.Message, "\n") // then ids and times
	}
	switch r.Code {
	case "ContainerNotFound":
		return &storage.NotFoundError{Bucket: b.At, Err: r}
	case "BlobNotFound", "ResourceNotFound":
		return b.missing(c, r)
	case "ContainerBeingDeleted", "ServerBusy", "InternalError", "OperationTimedOut", "Md5Mismatch", "PendingCopyOperation", "CannotVerifyCopySource":
		if r.Code == "ServerBusy" {
			return &storage.ThrottledError{Bucket: b.At, After: r.After(), Err: r}
		}
		if r.Code == "CannotVerifyCopySource" && r.Status < 500 { // the source was looked at
			break
		}
		return &storage.UnavailableError{Bucket: b.At, Err: r}
	case "InvalidBlockList", "InvalidBlockId":
		return &storage.NotFoundError{Bucket: b.At, Key: c.Key, Upload: c.Upload, Err: r}
	case "BlobAlreadyExists", "ConditionNotMet", "SourceConditionNotMet", "TargetConditionNotMet":
		return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
	case "AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation":
		return b.credentials(c, r)
	case "FeatureVersionMismatch", "UnsupportedHttpVerb", "FeatureNotSupportedForAccount":
		return &storage.UnsupportedError{Store: storage.Azure, Op: "do this", Err: r}
	}
	switch {
	case r.Status == http.StatusNotFound:
		return b.missing(c, r)
	case r.Status == http.StatusForbidden:
		return &storage.DeniedError{Bucket: b.At, Key: c.Key, Permission: c.Permission, Account: b.account(), Err: r}
	case r.Status == http.StatusUnauthorized:
		return b.credentials(c, r)
	case r.Status == http.StatusPreconditionFailed:
		return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
	case r.Status == http.StatusTooManyRequests:
		return &storage.ThrottledError{Bucket: b.At, After: r.After(), Err: r}
	case r.Status == http.StatusNotImplemented:
		return &storage.UnsupportedError{Store: storage.Azure, Op: "do this", Err: r}
	case r.Status >= 500, r.Status == http.StatusRequestTimeout, r.Status < 400:
		return &storage.UnavailableError{Bucket: b.At, Err: r}
	case r.Status == http.StatusConflict && c.Conditional:
		return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
	}
	return &storage.InvalidError{Bucket: b.At, Key: c.Key, Err: r}
}

func (b *Bucket) missing(c rest.Call, r rest.Refusal) error {
	if c.Conditional {
		return &storage.ConflictError{Bucket: b.At, Key: c.Key, Err: r}
	}
	return &storage.NotFoundError{Bucket: b.At, Key: c.Key, Err: r}
}

// credentials explains refused credentials. Without any, the error only says that they are needed.
func (b *Bucket) credentials(c rest.Call, r rest.Refusal) error {
	if b.auth == "" {
		return &storage.DeniedError{Bucket: b.At, Key: c.Key, Permission: c.Permission, Account: b.account(), Err: r}
	}
	return &storage.CredentialsError{Store: storage.Azure, Err: r, Fix: Fix}
}

func (b *Bucket) account() string {
	switch {
	case b.tokens != nil:
		return b.tokens.Account()
	case b.sas != nil:
		return "the shared access signature"
	case b.auth == "":
		return "anybody without credentials"
	}
	return "the " + b.auth
}
