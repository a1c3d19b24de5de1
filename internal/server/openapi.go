package server

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/openapi"
)

type object = map[string]any

var (
	describing sync.Once
	described  []byte
)

// description is the OpenAPI document of the route table. It is made once, when
// somebody first asks.
func description() []byte {
	describing.Do(func() {
		var err error
		if described, err = json.Marshal(describe(Routes())); err != nil {
			panic(err) // maps of texts
		}
	})
	return described
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(description())
}

var (
	aText, textOrNull     = openapi.Schema{"type": "string"}, openapi.Schema{"type": []string{"string", "null"}}
	aNumber, numberOrNull = openapi.Schema{"type": "number"}, openapi.Schema{"type": []string{"number", "null"}}
	availability          = listOf(aText, openapi.Schema{"type": "array", "items": aNumber}, aNumber, aNumber)
)

// listOf is a list of as many items as there are schemas.
func listOf(items ...openapi.Schema) openapi.Schema {
	return openapi.Schema{"type": "array", "prefixItems": items, "minItems": len(items)}
}

// known are types with a JSON form of their own.
var known = sync.OnceValue(func() map[reflect.Type]openapi.Schema {
	return map[reflect.Type]openapi.Schema{
		reflect.TypeFor[api.Strings]():          {"anyOf": []openapi.Schema{{"type": []string{"array", "null"}, "items": openapi.Schema{"type": "string"}}, {"type": "string"}}},
		reflect.TypeFor[api.IntOrString]():      {"type": []string{"integer", "string"}},
		reflect.TypeFor[api.IntList]():          {"anyOf": []openapi.Schema{{"type": []string{"array", "null"}, "items": openapi.Schema{"type": "integer"}}, {"type": "integer"}}},
		reflect.TypeFor[nothing]():              {"type": "null"},
		reflect.TypeFor[api.AcceleratorOffer](): listOf(aText, textOrNull, aText, aNumber, numberOrNull, numberOrNull, numberOrNull, numberOrNull, numberOrNull, textOrNull),
		reflect.TypeFor[api.GPUAvailability]():  availability,
		reflect.TypeFor[api.ContextGPUs]():      listOf(aText, openapi.Schema{"type": "array", "items": availability}),
		reflect.TypeFor[clusterEvents]():        {"type": "array", "items": openapi.Schema{"anyOf": []openapi.Schema{{"$ref": "#/components/schemas/ClusterEvent"}, aText}}},
		// Whoever has to log in and is no client of ours is told the status only.
		reflect.TypeFor[healthAnswer](): {"anyOf": []openapi.Schema{{"$ref": "#/components/schemas/Health"},
			{"type": "object", "required": []string{"status"}, "maxProperties": 1}}},
	}
})

// describe is the document of routes.
func describe(routes []Route) object {
	c := openapi.New(known())
	c.Sent(reflect.TypeFor[api.Health]())
	c.Sent(reflect.TypeFor[api.RequestPayload]())
	c.Sent(reflect.TypeFor[api.ClusterEvent]())
	c.Partly(reflect.TypeFor[api.ManagedJob](), "job_id", "status")
	c.Partly(reflect.TypeFor[api.JobsLaunchResult](), "job_id")
	paths := object{}
	for _, r := range routes {
		path := openPath(r.Path)
		item, _ := paths[path].(object)
		if item == nil {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(r.Method)] = operation(c, r)
	}
	c.Schemas["Failure"] = openapi.Schema{"type": "object", "required": []string{"detail"}, "properties": object{
		"detail": object{"description": "What is wrong: a text, or for a body of the wrong type a list of problems."}}}
	return object{
		"openapi": "3.1.0",
		"info": object{"title": "sky API", "version": api.ProductVersion,
			"description": "Most routes accept a request: they answer null, the request's id is in the header " + api.HeaderRequestID +
				", and /api/get tells the result (x-result) when it has ended. Failures are {\"detail\": …}."},
		"paths": paths,
		"components": object{"schemas": c.Schemas, "securitySchemes": object{
			"token":    object{"type": "http", "scheme": "bearer", "description": "Token of a service account: sky_…"},
			"password": object{"type": "http", "scheme": "basic"},
		}},
		"security": []object{{}, {"token": []string{}}, {"password": []string{}}},
	}
}

var wildcard = lazyregexp.New(`\{([a-z]+)\.\.\.\}|\{\$\}`)

// openPath is the path in the spelling of OpenAPI.
func openPath(path string) string { return wildcard.ReplaceAllString(path, "$1") }

var pathParam = lazyregexp.New(`\{([a-z]+)\}`)

func operation(c *openapi.Components, r Route) object {
	o := r.outcome()
	nobody, viewer, user, admin := r.Access()
	op := object{
		"operationId": operationID(r), "tags": []string{tag(r.Path)},
		"x-access":  object{"no login": nobody, "viewer": viewer, "user": user, "admin": admin},
		"responses": responses(c, r, o),
	}
	if r.Name != "" {
		op["x-request"] = requestName(r.Name)
		op["x-result"] = sent(c, o)
	}
	var params []object
	for _, m := range pathParam.FindAllStringSubmatch(openPath(r.Path), -1) {
		params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	all := maps.Clone(r.Query)
	if all == nil {
		all = query{}
	}
	maps.Copy(all, o.params)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		params = append(params, object{"name": name, "in": "query", "schema": object{"type": all[name].kind}})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.Body != nil {
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": c.Received(r.Body.of, r.Body.required)}}}
	}
	return op
}

func sent(c *openapi.Components, o outcome) openapi.Schema {
	if o.result == nil {
		return openapi.Schema{}
	}
	return c.Sent(o.result)
}

func responses(c *openapi.Components, r Route, o outcome) object {
	id := object{api.HeaderRequestID: object{"schema": object{"type": "string"}, "description": "The request's id."}}
	good := object{"description": "Done.", "headers": id}
	media := o.media
	schema := sent(c, o)
	switch {
	case r.Kind == Socket:
		return object{"101": object{"description": "A websocket begins."}, "default": failures()}
	case r.Kind == Log:
		media, good["description"] = mediaText, "The log, as it is written; the result is told by /api/get."
	case r.Kind == Async:
		good["description"], schema = "Accepted; the result is told by /api/get.", openapi.Schema{"type": []string{"null", "object"}}
	case r.Kind == Page && media == "":
		return object{"307": object{"description": "The page is elsewhere."}, "default": failures()}
	}
	if media != "" {
		good["content"] = object{media: object{}}
	} else {
		good["content"] = object{"application/json": object{"schema": schema}}
	}
	return object{"200": good, "default": failures()}
}

func failures() object {
	return object{"description": "It was not done.", "content": object{"application/json": object{"schema": object{
		// A client whose version is too old is told with message in place of detail.
		"anyOf": []object{{"$ref": "#/components/schemas/Failure"}, {"type": "object", "required": []string{"error", "message"}}}}}}}
}

// operationID is a name that no other operation has.
func operationID(r Route) string {
	return strings.ToLower(r.Method) + strings.NewReplacer("/", "_", "-", "_", "{", "", "}", "").Replace(openPath(r.Path))
}

// tag groups routes by the beginning of their path; clusters have none.
func tag(path string) string {
	first, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !more && rest == "" && !slices.Contains([]string{"users", "volumes", "workspaces", "recipes"}, first) {
		return "clusters and infrastructure"
	}
	return strings.ReplaceAll(first, "_", " ")
}

const docsHTML = `<!doctype html>
<meta charset="utf-8"><title>sky API</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:64em;padding:0 1em}summary{cursor:pointer}code,pre{font:13px/1.4 ui-monospace,monospace}pre{background:#8881;padding:.6em;overflow:auto}b.m{display:inline-block;width:4.5em}details{margin:.15em 0}details details{margin-left:1em}</style>
<h1>sky API</h1><p id="about"></p>
<p>As a file: <a href="/api/openapi.json">/api/openapi.json</a>. <label>Show <input id="find" placeholder="part of a path"></label></p>
<div id="list"></div>
<script>
const el = (name, text, ...inside) => { const e = document.createElement(name); e.textContent = text || ""; e.append(...inside); return e; };
fetch("/api/openapi.json").then(r => r.json()).then(doc => {
  document.getElementById("about").textContent = doc.info.description;
  const list = document.getElementById("list"), groups = {};
  const resolve = (s, seen) => {
    if (Array.isArray(s)) return s.map(v => resolve(v, seen));
    if (!s || typeof s !== "object") return s;
    if (s.$ref) { const n = s.$ref.split("/").pop(); return seen.includes(n) ? n : resolve(doc.components.schemas[n], [...seen, n]); }
    return Object.fromEntries(Object.entries(s).map(([k, v]) => [k, resolve(v, seen)]));
  };
  const part = (title, value) => { const d = el("details", "", el("summary", title)); d.ontoggle = () => { if (d.open && d.children.length < 2) d.append(el("pre", JSON.stringify(resolve(value, []), null, 2))); }; return d; };
  for (const [path, item] of Object.entries(doc.paths).sort()) for (const [method, op] of Object.entries(item)) {
    const sum = el("summary"), m = el("b", method.toUpperCase()); m.className = "m"; sum.append(m, el("code", path));
    const d = el("details", "", sum); d.dataset.path = path;
    d.append(el("p", "Who: " + Object.entries(op["x-access"]).map(([k, v]) => k + " " + v).join(", ")));
    if (op.parameters) d.append(part("Parameters", op.parameters));
    if (op.requestBody) d.append(part("Body", op.requestBody.content["application/json"].schema));
    d.append(op["x-request"] ? part("Result of " + op["x-request"], op["x-result"]) : part("Answer", op.responses));
    (groups[op.tags[0]] ??= []).push(d);
  }
  for (const [name, items] of Object.entries(groups)) list.append(el("h2", name), ...items);
  document.getElementById("find").oninput = e => { for (const d of list.querySelectorAll("details[data-path]")) d.hidden = !d.dataset.path.includes(e.target.value); };
});
</script>
`

// docs shows the description; it needs nothing from elsewhere.
func (s *Server) docs(w http.ResponseWriter, _ *http.Request) {
	pageHeaders(w.Header())
	_, _ = io.WriteString(w, docsHTML)
}
