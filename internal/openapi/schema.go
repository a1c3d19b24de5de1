// Package openapi describes Go types as JSON Schema, in the form that an OpenAPI
// 3.1 document holds them.
//
// It is our own because the routes of the server are a table already: the
// libraries there are want to own routing and handlers, and all that is needed of
// them is this one walk over types. A schema says what encoding/json writes and
// accepts: a nil list is null, a key without a value may be missing, unknown keys
// are passed over.
package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Schema is a JSON Schema.
type Schema = map[string]any

// Components collects the schemas of named types. A type that is sent and a type
// that is received differ: what we write is always complete.
type Components struct {
	Schemas map[string]Schema
	types   map[string]reflect.Type
	known   map[reflect.Type]Schema
}

// New is an empty collection. known are types whose JSON is not that of their Go
// form.
func New(known map[reflect.Type]Schema) *Components {
	return &Components{Schemas: map[string]Schema{}, types: map[string]reflect.Type{}, known: known}
}

// Sent is the schema of what we write for a type.
func (c *Components) Sent(t reflect.Type) Schema { return c.of(t, nil, true) }

// Received is the schema of what we accept for a type; keys in required may not
// be missing or null.
func (c *Components) Received(t reflect.Type, required []string) Schema {
	if required == nil {
		required = []string{}
	}
	return c.of(t, required, false)
}

// Partly describes a struct with a MarshalJSON that writes its fields, but may leave out
// all that are not required.
func (c *Components) Partly(t reflect.Type, required ...string) {
	s := c.fields(t, nil, true)
	s["required"] = required
	c.types[t.Name()], c.Schemas[t.Name()] = t, s
}

var (
	marshaler   = reflect.TypeFor[json.Marshaler]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

func (c *Components) of(t reflect.Type, required []string, sent bool) Schema {
	if s, ok := c.known[t]; ok {
		return s
	}
	if t.Kind() == reflect.Pointer {
		return Nullable(c.of(t.Elem(), required, sent))
	}
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
		if c.types[t.Name()] == t {
			return ref(t.Name()) // described by Partly
		}
		return Schema{} // what it is only its methods know
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Slice:
		return Schema{"type": []string{"array", "null"}, "items": c.of(t.Elem(), nil, sent)}
	case reflect.Array:
		return Schema{"type": "array", "items": c.of(t.Elem(), nil, sent), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return Schema{"type": []string{"object", "null"}, "additionalProperties": c.of(t.Elem(), nil, sent)}
	case reflect.Struct:
		return c.object(t, required, sent)
	case reflect.Interface:
		return Schema{}
	}
	panic(fmt.Sprintf("openapi: a value of type %s has no JSON", t))
}

// object names a struct among the components, unless it has no name.
func (c *Components) object(t reflect.Type, required []string, sent bool) Schema {
	if t.Name() == "" {
		return c.fields(t, required, sent)
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if !sent && !strings.HasSuffix(name, "Body") {
		name += "Input"
	}
	if was, ok := c.types[name]; ok {
		if was != t {
			panic(fmt.Sprintf("openapi: %s and %s are both called %s", was, t, name))
		}
		return ref(name)
	}
	c.types[name] = t
	c.Schemas[name] = nil // ends recursion
	c.Schemas[name] = c.fields(t, required, sent)
	return ref(name)
}

func ref(name string) Schema { return Schema{"$ref": "#/components/schemas/" + name} }

func (c *Components) fields(t reflect.Type, required []string, sent bool) Schema {
	properties, always := Schema{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		s := c.of(f.Type, nil, sent)
		switch {
		case sent && !strings.Contains(options, "omitempty"):
			always = append(always, tag)
		case !sent && contains(required, tag):
			always = append(always, tag)
			s = notNull(s)
		case !sent:
			s = Nullable(s)
		}
		properties[tag] = s
	}
	out := Schema{"type": "object", "properties": properties}
	if len(always) > 0 {
		out["required"] = always
	}
	return out
}

// Nullable is a schema that null fits, too.
func Nullable(s Schema) Schema {
	switch kind := s["type"].(type) {
	case string:
		if len(s) == 1 {
			return Schema{"type": []string{kind, "null"}}
		}
	case []string:
		return s
	}
	if len(s) == 0 || s["anyOf"] != nil {
		return s
	}
	return Schema{"anyOf": []Schema{s, {"type": "null"}}}
}

// notNull is a schema that null does not fit.
func notNull(s Schema) Schema {
	kinds, ok := s["type"].([]string)
	if !ok || len(kinds) != 2 {
		return s
	}
	out := Schema{}
	for k, v := range s {
		out[k] = v
	}
	out["type"] = kinds[0]
	return out
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
