package yaml11

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/skypilot-go/sky/internal/similar"
)

// Unmarshal reads a text of one document into what out points to, see [Node.Decode].
// An empty text changes nothing.
func (s *Source) Unmarshal(out any) error {
	n, err := s.ReadOne()
	if err != nil || n == nil {
		return err
	}
	return n.Decode(out)
}

// Decoder is a type that reads itself from a node.
type Decoder interface{ DecodeYAML(n *Node) error }

// Decode stores n in what out points to: structs with the names of their json tags (else
// those of their fields in small letters),
// maps from texts, slices, pointers, texts, numbers, booleans, any. A scalar that is
// stored in a text is taken as written. Keys that a struct does not have are passed
// over; [Node.DecodeStrictly] refuses them. The error is an [*Error].
func (n *Node) Decode(out any) error { return n.decode(reflect.ValueOf(out).Elem(), "", false) }

// DecodeStrictly is [Node.Decode] that takes known keys only.
func (n *Node) DecodeStrictly(out any) error { return n.decode(reflect.ValueOf(out).Elem(), "", true) }

func (n *Node) decode(v reflect.Value, path string, strict bool) error {
	if d, ok := v.Addr().Interface().(Decoder); ok {
		return d.DecodeYAML(n)
	}
	if n.IsNull() {
		v.SetZero()
		return nil
	}
	wrong := func(want string) error {
		return &Error{Place: n.Place, Message: fmt.Sprintf("%s should be %s, not %s", strings.TrimPrefix(path, "."), want, n.Describe())}
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return n.decode(v.Elem(), path, strict)
	case reflect.Interface:
		v.Set(reflect.ValueOf(n.Any()))
	case reflect.String:
		if !n.IsScalar() {
			return wrong("a text")
		}
		v.SetString(n.Text)
	case reflect.Bool:
		b, ok := n.Value.(bool)
		if !ok {
			return wrong("true or false")
		}
		v.SetBool(b)
	case reflect.Int:
		if f := n.Number(); n.Kind&Number == 0 || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return wrong("a whole number")
		}
		v.SetInt(int64(n.Number()))
	case reflect.Slice:
		if n.Kind != List {
			return wrong("a list")
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
		for i, item := range n.Items {
			if err := item.decode(v.Index(i), fmt.Sprintf("%s[%d]", path, i), strict); err != nil {
				return err
			}
		}
	case reflect.Map:
		if n.Kind != Map {
			return wrong("a map")
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, e := range n.Entries {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := e.Value.decode(item, path+"."+e.Key.Text, strict); err != nil {
				return err
			}
			v.SetMapIndex(reflect.ValueOf(e.Key.Text), item)
		}
	case reflect.Struct:
		if n.Kind != Map {
			return wrong("a map")
		}
		return n.decodeStruct(v, path, strict)
	default:
		panic("yaml11: a value of type " + v.Type().String() + " cannot be read")
	}
	return nil
}

func (n *Node) decodeStruct(v reflect.Value, path string, strict bool) error {
	fields, names := map[string]reflect.Value{}, []string{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = cmp.Or(name, strings.ToLower(f.Name))
		fields[name] = v.Field(i)
		names = append(names, name)
	}
	for _, e := range n.Entries {
		field, ok := fields[e.Key.Text]
		switch {
		case ok:
			if err := e.Value.decode(field, path+"."+e.Key.Text, strict); err != nil {
				return err
			}
		case strict:
			text := fmt.Sprintf("unknown key %q", e.Key.Text)
			if near := similar.Names(e.Key.Text, names); len(near) > 0 {
				text += "; did you mean " + strings.Join(near, " or ") + "?"
			} else {
				text += "; known here: " + strings.Join(names, ", ")
			}
			return &Error{Place: e.Key.Place, Message: text}
		}
	}
	return nil
}

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
