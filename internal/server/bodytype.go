package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A bodyType is what the body of a route must look like: a JSON object that
// decodes into a type, with some keys that may not be missing.
type bodyType struct {
	of       reflect.Type
	required []string
}

func body[T any](required ...string) *bodyType {
	return &bodyType{reflect.TypeFor[T](), required}
}

// A problem is one reason for a 422, in the form clients know from FastAPI.
type problem struct {
	Type    string         `json:"type"`
	Loc     []any          `json:"loc"`
	Message string         `json:"msg"`
	Input   any            `json:"input,omitempty"`
	Ctx     map[string]any `json:"ctx,omitempty"`
}

// check returns what is wrong with raw, or nil.
func (s *bodyType) check(raw []byte) []problem {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return []problem{{Type: "missing", Loc: []any{"body"}, Message: "a JSON object is required as the request's body"}}
	}
	if trimmed[0] != '{' && json.Valid(trimmed) {
		return []problem{{Type: "model_attributes_type", Loc: []any{"body"}, Message: "the body must be a JSON object"}}
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(trimmed, &keys); err != nil {
		return []problem{decodeProblem(err)}
	}
	problems := ambiguous(keys)
	for _, k := range s.required {
		if v, ok := keys[k]; !ok || string(v) == "null" {
			problems = append(problems, problem{Type: "missing", Loc: []any{"body", k}, Message: k + " is required"})
		}
	}
	if err := json.Unmarshal(trimmed, reflect.New(s.of).Interface()); err != nil {
		problems = append(problems, decodeProblem(err))
	}
	return problems
}

// whole is raw with 5 in place of 5.0, if a whole number is wanted somewhere: Python
// does not tell the two apart.
func (s *bodyType) whole(raw []byte) []byte {
	err := json.Unmarshal(raw, reflect.New(s.of).Interface())
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || !strings.HasPrefix(wrong.Value, "number") || typeName(wrong.Type) != "int" {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		from := i
		switch c := raw[i]; {
		case c == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(raw))
			out = append(out, raw[from:i]...)
		case c == '-' || c >= '0' && c <= '9':
			for i < len(raw) && strings.IndexByte("+-.0123456789eE", raw[i]) >= 0 {
				i++
			}
			number := raw[from:i]
			if n, fraction, ok := bytes.Cut(number, []byte(".")); ok && len(bytes.Trim(fraction, "0")) == 0 {
				number = n
			}
			out = append(out, number...)
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}

// ambiguous finds keys that differ in case only. Readers of JSON may ignore case,
// and then take one of the two: a body must mean the same to who checks it and to
// who acts on it.
func ambiguous(keys map[string]json.RawMessage) []problem {
	var problems []problem
	seen := make(map[string]string, len(keys))
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		folded := strings.Map(foldRune, k)
		if other, ok := seen[folded]; ok {
			problems = append(problems, problem{Type: "value_error", Loc: []any{"body", k}, Message: "the body has " + quoted(other) + " and " + quoted(k)})
			break // one is enough
		}
		seen[folded] = k
	}
	return problems
}

// foldRune is the least of the runes that differ from r in case only, as for
// [strings.EqualFold].
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

func decodeProblem(err error) problem {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		loc := []any{"body"}
		for part := range strings.SplitSeq(e.Field, ".") {
			if part != "" && part != "Envelope" {
				loc = append(loc, part)
			}
		}
		return problem{Type: typeName(e.Type) + "_type", Loc: loc,
			Message: fmt.Sprintf("must be %s, not %s", wanted(e.Type), e.Value)}
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return problem{Type: "json_invalid", Loc: []any{"body", e.Offset}, Message: "the body is not valid JSON",
			Ctx: map[string]any{"error": err.Error()}}
	}
	return problem{Type: "value_error", Loc: []any{"body"}, Message: err.Error()}
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "float"
	case reflect.Bool:
		return "bool"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "dict"
	}
	return "string"
}

func wanted(t reflect.Type) string {
	return map[string]string{"int": "a whole number", "float": "a number", "bool": "true or false",
		"list": "a list", "dict": "an object", "string": "a text"}[typeName(t)]
}

// isJSON reports whether the body claims to be JSON. Browsers can send other
// types to any site without asking it first.
func isJSON(r *http.Request) bool {
	ct := r.Header.Get("Content-Type")
	if ct == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(ct)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// A query lists the parameters of a GET route that become fields of the
// request's body.
type query map[string]param

// A param is one parameter: what it is, in words of JSON Schema, and how it is
// read.
type param struct {
	kind string
	read func(string) (any, error)
}

var (
	textParam = param{"string", func(s string) (any, error) { return s, nil }}
	boolParam = param{"boolean", func(s string) (any, error) { return parseBool(s) }}
	intParam  = param{"integer", func(s string) (any, error) { return strconv.Atoi(s) }}
	listParam = param{"string", readList}
)

// readList reads a comma list.
func readList(s string) (any, error) {
	list := []string{}
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list, nil
}

// parseBool reads what Python and browsers send: True, true, 1, yes, on.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on", "t", "y":
		return true, nil
	case "false", "0", "no", "off", "f", "n":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

// body is the request body that the parameters stand for.
func (q query) body(values url.Values) ([]byte, []problem) {
	fields := map[string]any{}
	var problems []problem
	for name, p := range q {
		if !values.Has(name) {
			continue
		}
		v, err := p.read(values.Get(name))
		if err != nil {
			problems = append(problems, queryProblem(name, err))
			continue
		}
		fields[name] = v
	}
	b, err := json.Marshal(fields)
	if err != nil {
		problems = append(problems, queryProblem("", err))
	}
	return b, problems
}

func queryProblem(name string, err error) problem {
	return problem{Type: "value_error", Loc: []any{"query", name}, Message: err.Error()}
}

// queryInt reads an optional whole number that is not negative.
func queryInt(values url.Values, name string) (n int, given bool, p []problem) {
	s := values.Get(name)
	if s == "" {
		return 0, false, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, false, []problem{queryProblem(name, errors.New("must be a whole number that is not negative"))}
	}
	return n, true, nil
}

// queryTail reads how many of the last lines are asked for; 0, also for less than
// that, is all.
func queryTail(values url.Values) (int, []problem) {
	if n, err := strconv.Atoi(values.Get("tail")); err == nil && n < 0 {
		return 0, nil
	}
	n, _, p := queryInt(values, "tail")
	return n, p
}

// queryBool reads an optional boolean.
func queryBool(values url.Values, name string, absent bool) (bool, []problem) {
	s := values.Get(name)
	if s == "" {
		return absent, nil
	}
	v, err := parseBool(s)
	if err != nil {
		return absent, []problem{queryProblem(name, err)}
	}
	return v, nil
}

// has reports whether the body has a field of that name.
func (s *bodyType) has(name string) bool {
	for _, f := range reflect.VisibleFields(s.of) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return true
		}
	}
	return false
}
