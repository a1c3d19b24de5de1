package sky

import (
	"encoding/json"

	"github.com/skypilot-go/sky/api"
)

// decodeError turns RequestPayload.Error into an [*api.Error]; nil when the text
// says that there was none. Only the plain fields are read, never the pickle.
func decodeError(text string) *api.Error {
	if text == "" || text == "null" {
		return nil
	}
	var rec api.ErrorRecord
	if err := json.Unmarshal([]byte(text), &rec); err != nil {
		return &api.Error{Type: api.ErrRuntime, Message: text}
	}
	return &api.Error{Type: rec.Type, Message: rec.Message, Attributes: rec.Attributes, Hint: rec.Hint, Details: rec.Details}
}

// exceptionRecord is an exception in the 400 answers of /validate.
type exceptionRecord struct {
	Type       string         `json:"type"`
	Message    string         `json:"message"`
	Args       []any          `json:"args"`
	Attributes map[string]any `json:"attributes"`
	Hint       string         `json:"hint"`
}

// decodeDetail finds an error of a known class in {"detail": …}: a finished
// request's payload or an exception.
func decodeDetail(body []byte) error {
	var d struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &d) != nil || len(d.Detail) == 0 || d.Detail[0] != '{' {
		return nil
	}
	var e exceptionRecord
	if json.Unmarshal(d.Detail, &e) != nil || e.Type == "" {
		return nil
	}
	if e.Message == "" && len(e.Args) > 0 {
		e.Message, _ = e.Args[0].(string)
	}
	return &api.Error{Type: e.Type, Message: e.Message, Attributes: e.Attributes, Hint: e.Hint}
}
