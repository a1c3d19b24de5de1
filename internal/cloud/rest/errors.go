package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Error is a refusal: the call had no effect.
type Error struct {
	Status  int
	Code    string // the API's word; "": it has none
	Message string
}

// Refused is the code, the status and the message, as package vm reads them.
func (e *Error) Refused() (code string, status int, message string) {
	return e.Code, e.Status, e.Message
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
// {"error": "text"}, {"error": "code", "msg"}, {"code", "message"}, {"status", "message"} and {"title", "detail"}. Answers of 5xx prove nothing, and so
// does what is no JSON, except for 429, 401 and 403, which say enough.
func ReadError(status int, _ http.Header, body []byte) error {
	if status >= 500 {
		return nil
	}
	if e := read(status, body); e != nil {
		return e
	}
	return nil
}

// ReadDetails is ReadError for servers that also answer {"detail": [{"loc": […], "msg"}]}, as
// those made with FastAPI do of fields that are wrong.
func ReadDetails(status int, header http.Header, body []byte) error {
	var answer struct {
		Detail []struct {
			Loc []any  `json:"loc"`
			Msg string `json:"msg"`
		} `json:"detail"`
	}
	if status >= 500 || json.Unmarshal(body, &answer) != nil || len(answer.Detail) == 0 {
		return ReadError(status, header, body)
	}
	var all []string
	for _, d := range answer.Detail {
		field := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(d.Loc), "[]")), ".")
		all = append(all, strings.TrimPrefix(field+": "+d.Msg, ": "))
	}
	return &Error{Status: status, Message: strings.Join(all, "; ")}
}

// mostBroken bounds what is kept of an answer that proves nothing.
const mostBroken = 300

// broken is what such an answer said: people who look for the reason need it.
func broken(status int, body []byte) error {
	text := ""
	if e := read(status, body); e != nil && e.Code+e.Message != "" {
		text = e.Error()
	} else if body = bytes.TrimSpace(body); utf8.Valid(body) && !bytes.HasPrefix(body, []byte("<")) {
		text = string(body[:min(len(body), mostBroken)])
	}
	if text == "" {
		return fmt.Errorf("status %d", status)
	}
	return fmt.Errorf("status %d: %s", status, strings.ToValidUTF8(text, ""))
}

func read(status int, body []byte) *Error {
	type words struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
		Status  any    `json:"status"` // the code, where that is a number
		Title   string `json:"title"`
		Detail  string `json:"detail"`
	}
	var outer struct {
		words
		Error json.RawMessage `json:"error"`
		Msg   string          `json:"msg"`
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
		if outer.Msg != "" {
			w.Code, w.Message = w.Message, outer.Msg
		}
	}
	if name, ok := w.Status.(string); ok && name != "" {
		e.Code = name
	} else if w.Code != nil {
		e.Code = fmt.Sprint(w.Code)
	} else {
		e.Code = w.Title
	}
	if e.Message = cmp.Or(w.Message, w.Detail); e.Code == "" && e.Message == "" && !known {
		return nil
	}
	return e
}
