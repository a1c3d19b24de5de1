package api

import (
	"encoding/json"
	"errors"
	"strconv"
)

// Strings is a list that may also be sent as a single string.
type Strings []string

func (s *Strings) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var one string
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		*s = Strings{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// IntOrString is a number or a text, such as a port or the name of a task.
type IntOrString struct {
	text   string
	number bool
}

// Int returns the number, if it is one.
func (v IntOrString) Int() (int, bool) {
	n, err := strconv.Atoi(v.text)
	return n, err == nil && v.number
}

func (v IntOrString) String() string { return v.text }

func (v *IntOrString) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		v.number = false
		return json.Unmarshal(b, &v.text)
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return errors.New("neither a number nor a text")
	}
	*v = IntOrString{text: n.String(), number: n != ""}
	return nil
}

func (v IntOrString) MarshalJSON() ([]byte, error) {
	if v.number {
		return []byte(v.text), nil
	}
	return json.Marshal(v.text)
}

// Text and Number make an IntOrString.
func Text(s string) IntOrString { return IntOrString{text: s} }
func Number(n int) IntOrString  { return IntOrString{text: strconv.Itoa(n), number: true} }
