package rest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Error is a refusal: the call had no effect.
type Error struct {
	Status  int
	Code    string // the API's word; "": it has none
	Message string
}

func (e *Error) Error() string {
	words := []string{}
	for _, w := range []string{e.Code, strings.TrimSuffix(e.Message, ".")} {
		if w != "" {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return fmt.Sprintf("status %d", e.Status)
	}
	return strings.Join(words, ": ")
}

// NoAnswerError means that no answer came, or none that makes sense: the call may
// have had its effect.
type NoAnswerError struct {
	Cloud string
	Err   error
}

func (e *NoAnswerError) Error() string { return fmt.Sprintf("no answer from %s: %v", e.Cloud, e.Err) }
func (e *NoAnswerError) Unwrap() error { return e.Err }

// ReadError reads the common forms of a refusal: {"error": {"code", "message"}},
// {"error": "text"} and {"code", "message"}. Answers of 5xx prove nothing, and so
// does what is no JSON, except for 429, 401 and 403, which say enough.
func ReadError(status int, body []byte) error {
	if status >= 500 {
		return nil
	}
	type words struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
	}
	var outer struct {
		words
		Error json.RawMessage `json:"error"`
	}
	e := &Error{Status: status}
	known := status == 401 || status == 403 || status == 429
	if json.Unmarshal(body, &outer) != nil {
		if !known {
			return nil
		}
		return e
	}
	w := outer.words
	if len(outer.Error) > 0 && json.Unmarshal(outer.Error, &w) != nil {
		w = words{}
		if json.Unmarshal(outer.Error, &w.Message) != nil && !known {
			return nil
		}
	}
	if w.Code != nil {
		e.Code = fmt.Sprint(w.Code)
	}
	if e.Message = w.Message; e.Code == "" && e.Message == "" && !known {
		return nil
	}
	return e
}
