package fluffyapi

import (
	"fmt"
	"net/http"

	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Code is why FluffyCloud refused.
type Code string

const (
	Unauthorized  Code = "unauthorized"          // no token, or one that nobody has
	Forbidden     Code = "forbidden"             // the account may not do this
	NotFound      Code = "not_found"             // no such instance, firewall or route
	Invalid       Code = "invalid"               // the request can never work
	NoCapacity    Code = "insufficient_capacity" // the zone has no more of this now
	QuotaExceeded Code = "quota_exceeded"        // the account may have no more of this in the region
	NameTaken     Code = "name_taken"            // another instance has the name
	TokenReused   Code = "token_reused"          // the client token belongs to another request
	WrongState    Code = "wrong_state"           // not possible in the instance's state
	InUse         Code = "in_use"                // instances still need it
	Throttled     Code = "throttled"             // too many calls
	Internal      Code = "internal"              // FluffyCloud's own fault
)

// Status is the HTTP status that carries the code.
func (c Code) Status() int {
	switch c {
	case Unauthorized:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case Invalid:
		return http.StatusBadRequest
	case NoCapacity, QuotaExceeded, NameTaken, TokenReused, WrongState, InUse:
		return http.StatusConflict
	case Throttled:
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// Error is a refusal: the call had no effect.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Refused is the code, its status and the message, as package vm reads them.
func (e *Error) Refused() (code string, status int, message string) {
	return string(e.Code), e.Code.Status(), e.Message
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf makes a refusal.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// NoAnswer means that no answer came, or none that makes sense: the call may have
// had its effect.
func NoAnswer(err error) error { return &rest.NoAnswerError{Cloud: "FluffyCloud", Err: err} }
