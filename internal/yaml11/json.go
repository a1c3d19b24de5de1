package yaml11

import (
	"bytes"
	"encoding/json"
	"errors"
)

// FromJSON makes nodes of JSON text; keys stay in their order.
func FromJSON(text []byte) (*Node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return fromJSON(d)
}

func fromJSON(d *json.Decoder) (*Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return Of(token), nil
	}
	n := NewList()
	if open == '{' {
		n = NewMap()
	}
	for d.More() {
		key := ""
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			if key, ok = token.(string); !ok {
				return nil, errors.New("a key of a JSON object is no text")
			}
		}
		v, err := fromJSON(d)
		if err != nil {
			return nil, err
		}
		if open == '{' {
			n.Append(key, v)
		} else {
			n.Items = append(n.Items, v)
		}
	}
	_, err = d.Token()
	return n, err
}
