package server

import (
	"encoding/json"
	"mime"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skypilot-go/sky/api"
)

// contract is the description of the API, ready to check answers against. Every
// answer that any test of this package gets is checked.
var contract = sync.OnceValue(func() *checker {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(description())))
	if err != nil {
		panic(err)
	}
	c := &checker{doc: doc.(map[string]any), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	if err := c.compiler.AddResource("sky.json", doc); err != nil {
		panic(err)
	}
	for _, r := range Routes() {
		p := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(openPath(r.Path)), `[^/]+`)
		if strings.HasSuffix(r.Path, "...}") {
			p = regexp.QuoteMeta(strings.TrimSuffix(openPath(r.Path), "path")) + ".*"
		}
		c.routes = append(c.routes, pathForm{regexp.MustCompile("^" + p + "$"), r})
	}
	return c
})

type pathForm struct {
	form  *regexp.Regexp
	route Route
}

type checker struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	routes   []pathForm
	mu       sync.Mutex
	schemas  map[string]*jsonschema.Schema
}

func (c *checker) route(method, path string) *Route {
	for i := range c.routes {
		if c.routes[i].route.Method == method && c.routes[i].form.MatchString(path) {
			return &c.routes[i].route
		}
	}
	return nil
}

// check validates JSON against the schema at a pointer into the document.
func (c *checker) check(pointer, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.schemas[pointer]
	if s == nil {
		var err error
		if s, err = c.compiler.Compile("sky.json#" + pointer); err != nil {
			return err
		}
		c.schemas[pointer] = s
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func pointer(r *Route, rest string) string {
	path := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(openPath(r.Path))
	return "/paths/" + path + "/" + strings.ToLower(r.Method) + rest
}

// conforms checks an answer against the description.
func conforms(t testing.TB, method, uri string, got reply) {
	t.Helper()
	path, _, _ := strings.Cut(uri, "?")
	r := contract().route(method, path)
	if r == nil || r.Kind == Socket {
		return
	}
	kind, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	if got.status >= 400 {
		if err := contract().check(pointer(r, "/responses/default/content/application~1json/schema"), got.body); err != nil {
			t.Errorf("%s %s: the failure %d %s is not as described: %v", method, path, got.status, got.body, err)
		}
		return
	}
	if kind != "application/json" {
		return // a page, a log, an archive, or a redirect to one
	}
	if r.outcome().media != "" {
		t.Errorf("%s %s answers JSON and is described as %s", method, path, r.outcome().media)
		return
	}
	if err := contract().check(pointer(r, "/responses/200/content/application~1json/schema"), got.body); err != nil {
		t.Errorf("%s %s: the answer %.300s is not as described: %v", method, path, got.body, err)
	}
}

// resultConforms checks the result of a request, as newest clients get it.
func resultConforms(t testing.TB, version string, p api.RequestPayload) {
	t.Helper()
	if version != "53" || p.Status != api.RequestSucceeded {
		return
	}
	for _, r := range Routes() {
		if r.Name != "" && requestName(r.Name) == p.Name {
			if err := contract().check(pointer(&r, "/x-result"), p.ReturnValue); err != nil {
				t.Errorf("%s: the result %.300s is not as described: %v", p.Name, p.ReturnValue, err)
			}
			return
		}
	}
}

func TestEveryRouteIsDescribed(t *testing.T) {
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
			RequestBody *struct{}
			XResult     *json.RawMessage `json:"x-result"`
		}
	}
	if err := json.Unmarshal(description(), &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatal(err, doc.OpenAPI)
	}
	ids, described := map[string]bool{}, 0
	for _, item := range doc.Paths {
		described += len(item)
	}
	routes := map[string]bool{}
	for _, r := range Routes() {
		routes[r.Method+" "+r.Path] = true
		op, ok := doc.Paths[openPath(r.Path)][strings.ToLower(r.Method)]
		if !ok || op.OperationID == "" || ids[op.OperationID] || len(op.Responses) < 2 || (op.RequestBody != nil) != (r.Body != nil) || (op.XResult != nil) != (r.Name != "") {
			t.Errorf("%s %s is described as %+v", r.Method, r.Path, op)
		}
		ids[op.OperationID] = true
		if r.Kind == Socket || r.Kind == Page && r.outcome().media == "" {
			continue
		}
		if r.outcome().media != "" || r.Kind == Log {
			continue
		}
		if _, err := contract().compiler.Compile("sky.json#" + pointer(&r, "/responses/200/content/application~1json/schema")); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.Path, err)
		}
		if r.Body != nil {
			if err := contract().check(pointer(&r, "/requestBody/content/application~1json/schema"), `[]`); err == nil {
				t.Errorf("%s %s: a list passes for its body", r.Method, r.Path)
			}
		}
	}
	if described != len(routes) {
		t.Errorf("%d operations are described and there are %d routes", described, len(routes))
	}
	for key := range outcomes() {
		if !routes[key] {
			t.Errorf("the outcome of %s is told, but there is no such route", key)
		}
	}
}

// What the reference's server answered fits our description, too: clients made
// from it can talk to either.
func TestRecordedAnswersConform(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/goldens/http/*.jsonl")
	if len(files) == 0 {
		t.Skip("the recorded sessions of ../shared/goldens/http are not here")
	}
	n := 0
	for _, f := range files {
		for _, rec := range readSession(t, f) {
			path, _, _ := strings.Cut(rec.URI, "?")
			r := contract().route(rec.Method, path)
			if r == nil {
				t.Errorf("%s %s is not described", rec.Method, path)
				continue
			}
			if rec.Request != "" && r.Body != nil {
				if err := contract().check(pointer(r, "/requestBody/content/application~1json/schema"), rec.Request); err != nil {
					t.Errorf("%s: what a client sent to %s is not as described: %v", filepath.Base(f), path, err)
				}
			}
			h := http.Header{}
			h.Set("Content-Type", rec.header("Content-Type"))
			if rec.Response != "" || rec.Status >= 400 {
				conforms(t, rec.Method, rec.URI, reply{rec.Status, h, rec.Response})
				n++
			}
		}
	}
	if n == 0 {
		t.Error("nothing was checked")
	}
}

// The checks above would not notice if every schema let everything through.
func TestWrongAnswersDoNotConform(t *testing.T) {
	for _, c := range []struct{ method, path, part, text string }{
		{get, "/users", "/responses/200/content/application~1json/schema", `[{"id":"x"}]`},
		{get, "/users", "/responses/200/content/application~1json/schema", `{}`},
		{get, "/api/health", "/responses/200/content/application~1json/schema", `{"api_version":"53"}`},
		{get, "/api/get", "/responses/200/content/application~1json/schema", `{"request_id":"x"}`},
		{post, "/status", "/responses/200/content/application~1json/schema", `[]`},
		{post, "/status", "/x-result", `[{"name":7}]`},
		{post, "/status", "/responses/default/content/application~1json/schema", `{}`},
		{post, "/launch", "/requestBody/content/application~1json/schema", `{"task":"x"}`},
		{post, "/launch", "/requestBody/content/application~1json/schema", `{"task":null,"cluster_name":"c"}`},
		{post, "/autostop", "/requestBody/content/application~1json/schema", `{"cluster_name":"c","idle_minutes":"5"}`},
	} {
		r := contract().route(c.method, c.path)
		if err := contract().check(pointer(r, c.part), c.text); err == nil {
			t.Errorf("%s %s%s lets %s through", c.method, c.path, c.part, c.text)
		}
	}
}
