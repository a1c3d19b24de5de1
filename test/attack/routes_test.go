//go:build attack && linux

package attack

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// A route is one call of the API as the server itself describes it.
type route struct {
	method, path string
	body         *schema
	query        []string
}

func (r route) String() string { return r.method + " " + r.path }

// concrete is the path with something in the place of its parameters.
func (r route) concrete() string {
	return strings.NewReplacer("{pool}", "p", "{name}", "n", "{path}", "x").Replace(r.path)
}

// A schema is the part of JSON Schema that the description uses.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"` // a word or a list of them
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
}

// is reports whether values may be of a type.
func (s *schema) is(name string) bool {
	switch t := s.Type.(type) {
	case string:
		return t == name
	case []any:
		return slices.Contains(t, any(name))
	}
	return false
}

// routes asks the server for its routes.
func (s *site) routes() []route {
	s.t.Helper()
	a := s.as("ada").get("/api/openapi.json")
	var d struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Schema *schema }
			} `json:"requestBody"`
			Parameters []struct{ In, Name string }
		}
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(a.body, &d); err != nil {
		s.t.Fatalf("%v: %s", err, a)
	}
	var resolve func(x *schema, depth int) *schema
	resolve = func(x *schema, depth int) *schema {
		if x == nil || depth > 6 {
			return x
		}
		if name, ok := strings.CutPrefix(x.Ref, "#/components/schemas/"); ok {
			return resolve(d.Components.Schemas[name], depth+1)
		}
		out := *x
		out.Properties = map[string]*schema{}
		for k, v := range x.Properties {
			out.Properties[k] = resolve(v, depth+1)
		}
		out.Items = resolve(x.Items, depth+1)
		return &out
	}
	var all []route
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			op := d.Paths[path][method]
			r := route{method: strings.ToUpper(method), path: path, body: resolve(op.RequestBody.Content["application/json"].Schema, 0)}
			for _, p := range op.Parameters {
				if p.In == "query" {
					r.query = append(r.query, p.Name)
				}
			}
			all = append(all, r)
		}
	}
	if len(all) < 100 {
		s.t.Fatalf("the server describes %d routes only", len(all))
	}
	return all
}

// sample is a body that the route accepts, made of what it requires, with some
// fields given.
func (r route) sample(given map[string]any) map[string]any {
	if r.body == nil {
		return nil
	}
	out := map[string]any{}
	for name, f := range r.body.Properties {
		if v, ok := given[name]; ok {
			out[name] = v
		} else if slices.Contains(r.body.Required, name) && f != nil {
			switch {
			case f.is("string"):
				out[name] = "x"
			case f.is("integer"), f.is("number"):
				out[name] = 1
			case f.is("array"):
				out[name] = []any{}
			case f.is("boolean"):
				out[name] = true
			default:
				out[name] = map[string]any{}
			}
		}
	}
	return out
}

// rights is who may call what, by method and path: without a login, viewer, user,
// elsewhere, admin.
func rights(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("testdata/roles.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 7 {
			t.Fatalf("testdata/roles.txt: %q", line)
		}
		out[f[0]+" "+strings.NewReplacer("{$}", "", "{path...}", "path").Replace(f[1])] = f[2:]
	}
	return out
}
