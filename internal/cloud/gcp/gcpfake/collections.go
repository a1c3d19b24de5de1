package gcpfake

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fakehttp"
)

var (
	uuid      = regexp.MustCompile(`^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)
	rfc1035   = regexp.MustCompile(`^[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKey  = regexp.MustCompile(`^[\p{Ll}\p{Lo}][\p{Ll}\p{Lo}\p{N}_-]{0,62}$`)
	labelText = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)
)

// collection is a kind of thing in a place.
type collection struct {
	name, kind, scope string // scope: "zones", "regions" or "global"
	fields            string // that a body may have
	check             func(f *Fake, r *http.Request, in dict) error
	users             func(f *Fake, path string) []string // that keep it from being deleted
	made              func(f *Fake, path string)
	gone              func(f *Fake, path string)
	told              func(f *Fake, path string, o dict) dict // nil: as it is kept
	patch             bool
	labels            bool
}

// body decodes what was sent: unknown fields are an error of Google's JSON reader.
func body(r *http.Request, s fakehttp.Schema) (dict, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	in := dict{}
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, refuse(400, "parseError", "Invalid JSON payload received. %v", err)
	}
	for field, pattern := range s {
		name, required := strings.CutPrefix(field, "!")
		v, ok := in[name]
		got, _ := json.Marshal(v)
		switch {
		case required && (!ok || v == nil):
			return nil, missing(name)
		case ok && !regexp.MustCompile(`(?s)^(?:`+pattern+`)$`).Match(got):
			return nil, invalid(name, v, "Must be a match of regex '%s'", pattern)
		}
	}
	return in, nil
}

func missing(field string) *fakehttp.Reply {
	return refuse(400, "required", "Required field 'resource.%s' not specified", field)
}

func invalid(field string, value any, why string, args ...any) *fakehttp.Reply {
	return refuse(400, "invalid", "Invalid value for field 'resource.%s': '%v'. %s", field, value, fmt.Sprintf(why, args...))
}

// known refuses fields that a resource does not have.
func known(in dict, fields, at string) error {
	if fields == "" {
		return nil
	}
	for name := range in {
		if !slices.Contains(strings.Fields(fields), name) {
			if at != "" {
				return refuse(400, "badRequest", "Invalid JSON payload received. Unknown name \"%s\" at '%s': Cannot find field.", name, at)
			}
			return refuse(400, "badRequest", "Invalid JSON payload received. Unknown name \"%s\": Cannot find field.", name)
		}
	}
	return nil
}

// fingerprint is that of a value.
func fingerprint(v any) string {
	text, _ := json.Marshal(v)
	h := fnv.New64a()
	_, _ = h.Write(text)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// checkLabels are the limits of
// https://cloud.google.com/compute/docs/labeling-resources#requirements.
func checkLabels(labels any, field string) error {
	all, _ := labels.(dict)
	if len(all) > 64 {
		return invalid(field, len(all), "A resource can have at most 64 labels.")
	}
	for k, v := range all {
		s, ok := v.(string)
		if !labelKey.MatchString(k) {
			return invalid(field, k, "Label key '%s' violates format constraints. The key must start with a lowercase character, can only contain lowercase letters, numeric characters, underscores and dashes. The key can be at most 63 characters long. International characters are allowed.", k)
		}
		if !ok || !labelText.MatchString(s) {
			return invalid(field, v, "Label value '%v' violates format constraints. The value can only contain lowercase letters, numeric characters, underscores and dashes. The value can be at most 63 characters long. International characters are allowed.", v)
		}
	}
	return nil
}

// exists reports that a path is known to this call; what is new may not be yet.
func (f *Fake) exists(path string) bool {
	if f.young[path] > 0 {
		f.young[path]--
		return false
	}
	return f.items[path] != nil
}

// keep adds a thing that has just been made.
func (f *Fake) keep(kind string, labels bool, path string, in dict) dict {
	scope := strings.Split(path, "/")
	in["kind"], in["id"], in["creationTimestamp"], in["selfLink"] = kind, f.newID(), now(), link(path)
	if scope[2] != "global" {
		in[strings.TrimSuffix(scope[2], "s")] = link(strings.Join(scope[:4], "/"))
	}
	if labels {
		in["labelFingerprint"] = fingerprint(in["labels"])
	}
	f.items[path] = in
	if f.lag > 0 {
		f.young[path] = f.lag
	}
	return in
}

// under are the paths in a collection, sorted.
func (f *Fake) under(prefix string) (paths []string) {
	for p := range f.items {
		if strings.HasPrefix(p, prefix) && !strings.Contains(strings.TrimPrefix(p, prefix), "/") {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// serve makes the routes of a collection.
func (f *Fake) serve(c *collection) {
	base := "/compute/{version}/projects/{project}/"
	switch c.scope {
	case "zones":
		base += "zones/{zone}/" + c.name
	case "regions":
		base += "regions/{region}/" + c.name
	default:
		base += "global/" + c.name
	}
	permission := "compute." + c.name + "."
	at := func(r *http.Request) string {
		return "projects/" + r.PathValue("project") + "/" + scopeOf(r) + "/" + c.name + "/"
	}
	get := func(r *http.Request) (string, dict, error) {
		p := at(r) + r.PathValue("name")
		if !f.exists(p) {
			return p, nil, notFound(p)
		}
		return p, f.items[p], nil
	}
	tell := func(p string) dict {
		if c.told != nil {
			f.sweep()
			return c.told(f, p, f.items[p])
		}
		return f.items[p]
	}
	f.on("GET", base, c.name+".list", permission+"list", nil, func(r *http.Request, _ dict) (any, error) {
		var all []dict
		for _, p := range f.under(at(r)) {
			if f.exists(p) {
				all = append(all, tell(p))
			}
		}
		return f.page(r, c.kind+"List", all)
	})
	f.on("GET", base+"/{name}", c.name+".get", permission+"get", nil, func(r *http.Request, _ dict) (any, error) {
		p, _, no := get(r)
		if no != nil {
			return nil, no
		}
		return tell(p), nil
	})
	f.on("POST", base, c.name+".put", permission+"create", nil, func(r *http.Request, in dict) (any, error) {
		name, _ := in["name"].(string)
		p := at(r) + name
		if no := cmpError(known(in, c.fields, ""), checkName(name)); no != nil {
			return nil, no
		}
		if c.labels {
			if no := checkLabels(in["labels"], "labels"); no != nil {
				return nil, no
			}
		}
		if c.check != nil {
			if no := c.check(f, r, in); no != nil {
				return nil, no
			}
		}
		if f.items[p] != nil {
			return nil, refuse(409, "alreadyExists", "The resource '%s' already exists", p)
		}
		op := f.begin(r, "insert", scopeOf(r), p, "")
		if op.no = f.fails("insert"); op.no == nil {
			op.targetID = f.keep(c.kind, c.labels, p, in)["id"].(string)
			if c.made != nil {
				c.made(f, p)
			}
		}
		return op.told(), nil
	})
	f.on("DELETE", base+"/{name}", c.name+".delete", permission+"delete", nil, func(r *http.Request, _ dict) (any, error) {
		p, o, no := get(r)
		if no != nil {
			return nil, no
		}
		if c.users != nil {
			if users := c.users(f, p); len(users) > 0 {
				return nil, inUse(c.name, p, users[0])
			}
		}
		op := f.begin(r, "delete", scopeOf(r), p, fmt.Sprint(o["id"]))
		if op.no = f.fails("delete"); op.no == nil {
			delete(f.items, p)
			if c.gone != nil {
				c.gone(f, p)
			}
		}
		return op.told(), nil
	})
	if c.patch {
		for _, method := range []string{"PATCH", "PUT"} {
			f.on(method, base+"/{name}", c.name+".put", permission+"update", nil, func(r *http.Request, in dict) (any, error) {
				p, o, no := get(r)
				if no != nil {
					return nil, no
				}
				whole := in
				if method == "PATCH" {
					whole = maps.Clone(o)
					maps.Copy(whole, in)
				}
				whole["name"] = o["name"]
				if no := known(in, c.fields, ""); no != nil {
					return nil, no
				}
				if c.check != nil {
					if no := c.check(f, r, whole); no != nil {
						return nil, no
					}
				}
				for _, fixed := range []string{"kind", "id", "creationTimestamp", "selfLink"} {
					whole[fixed] = o[fixed]
				}
				op := f.begin(r, strings.ToLower(method), scopeOf(r), p, fmt.Sprint(o["id"]))
				if op.no = f.fails(op.kind); op.no == nil {
					f.items[p] = whole
				}
				return op.told(), nil
			})
		}
	}
	if c.labels {
		f.on("POST", base+"/{name}/setLabels", c.name+".put", permission+"setLabels", nil, func(r *http.Request, in dict) (any, error) {
			p, o, no := get(r)
			if no != nil {
				return nil, no
			}
			return f.setLabels(r, p, o, in)
		})
	}
	if c.scope != "global" {
		f.on("GET", "/compute/{version}/projects/{project}/aggregated/"+c.name, c.name+".list", permission+"list", nil, func(r *http.Request, _ dict) (any, error) {
			var all []scoped
			for _, p := range slices.Sorted(maps.Keys(f.items)) {
				if s := strings.Split(p, "/"); len(s) == 6 && s[1] == Project && s[4] == c.name && f.exists(p) {
					all = append(all, scoped{s[2] + "/" + s[3], tell(p)})
				}
			}
			return f.aggregate(r, c.kind+"AggregatedList", c.name, all)
		})
	}
}

func inUse(what, path, by string) *fakehttp.Reply {
	return refuse(400, "resourceInUseByAnotherResource", "The %s resource '%s' is already being used by '%s'", strings.TrimSuffix(what, "s"), path, by)
}

// cmpError is the first that is one.
func cmpError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return missing("name")
	case !rfc1035.MatchString(name):
		return invalid("name", name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
	}
	return nil
}

// setLabels is that of all kinds:
// https://cloud.google.com/compute/docs/reference/rest/v1/instances/setLabels.
func (f *Fake) setLabels(r *http.Request, p string, o, in dict) (any, error) {
	if no := cmpError(known(in, "labels labelFingerprint", ""), checkLabels(in["labels"], "labels")); no != nil {
		return nil, no
	}
	if in["labelFingerprint"] == nil || in["labelFingerprint"] != o["labelFingerprint"] {
		return nil, refuse(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
	}
	op := f.begin(r, "setLabels", scopeOf(r), p, fmt.Sprint(o["id"]))
	if op.no = f.fails("setLabels"); op.no == nil {
		o["labels"] = in["labels"]
		o["labelFingerprint"] = fingerprint(in["labels"])
	}
	return op.told(), nil
}

// scoped is a thing in the answer of an aggregated list.
type scoped struct {
	scope string
	thing dict
}

// limits are how many a page has.
func (f *Fake) limits(r *http.Request, n int) (from, to int, next string, err error) {
	most := 500
	if s := r.URL.Query().Get("maxResults"); s != "" {
		v, bad := strconv.Atoi(s)
		if bad != nil || v < 0 || v > 500 {
			return 0, 0, "", refuse(400, "invalid", "Invalid value for field 'maxResults': '%s'. Must be in range [0, 500]", s)
		}
		if v > 0 {
			most = v
		}
	}
	if f.pageSize > 0 {
		most = min(most, f.pageSize)
	}
	if token := r.URL.Query().Get("pageToken"); token != "" {
		text, bad := base64.RawURLEncoding.DecodeString(token)
		at, list, _ := strings.Cut(string(text), " ")
		v, worse := strconv.Atoi(at)
		if bad != nil || worse != nil || list != r.URL.Path+" "+r.URL.Query().Get("filter") {
			return 0, 0, "", refuse(400, "invalid", "Invalid value for field 'pageToken': '%s'. The page token is invalid.", token)
		}
		from = min(v, n)
	}
	to = min(from+most, n)
	if to < n {
		next = base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf("%d %s %s", to, r.URL.Path, r.URL.Query().Get("filter"))))
	}
	return from, to, next, nil
}

// page is a list's answer.
func (f *Fake) page(r *http.Request, kind string, all []dict) (any, error) {
	fits, err := parseFilter(r.URL.Query().Get("filter"))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(o dict) bool { return !fits(o) })
	from, to, next, err := f.limits(r, len(all))
	if err != nil {
		return nil, err
	}
	out := dict{"kind": kind, "id": strings.TrimPrefix(r.URL.Path, "/compute/v1/"), "selfLink": "https://www.googleapis.com" + r.URL.Path}
	if to > from { // an empty list has no items at all
		out["items"] = all[from:to]
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	return out, nil
}

// aggregate is the answer of a list over all places: those without anything say so.
func (f *Fake) aggregate(r *http.Request, kind, name string, all []scoped) (any, error) {
	fits, err := parseFilter(r.URL.Query().Get("filter"))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s scoped) bool {
		zone, _ := strings.CutPrefix(s.scope, "zones/")
		return !fits(s.thing) || f.dark[zone]
	})
	slices.SortStableFunc(all, func(a, b scoped) int { return strings.Compare(a.scope, b.scope) })
	from, to, next, err := f.limits(r, len(all))
	if err != nil {
		return nil, err
	}
	items := dict{}
	if next == "" {
		for _, region := range regions {
			for _, zone := range zonesOf[region] {
				items["zones/"+zone] = dict{"warning": dict{"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope 'zones/" + zone + "' on this page.", "data": []any{dict{"key": "scope", "value": "zones/" + zone}}}}
			}
		}
	}
	for _, s := range all[from:to] {
		list, _ := items[s.scope].(dict)
		if list == nil || list["warning"] != nil {
			list = dict{name: []dict{}}
			items[s.scope] = list
		}
		list[name] = append(list[name].([]dict), s.thing)
	}
	out := dict{"kind": kind, "id": strings.TrimPrefix(r.URL.Path, "/compute/v1/"), "items": items, "selfLink": "https://www.googleapis.com" + r.URL.Path}
	if next != "" {
		out["nextPageToken"] = next
	}
	for _, zone := range slices.Sorted(maps.Keys(f.dark)) {
		out["unreachables"] = append(fakehttp.Items(out["unreachables"]), "projects/"+Project+"/zones/"+zone)
	}
	if len(f.dark) > 0 && r.URL.Query().Get("returnPartialSuccess") != "true" {
		return nil, refuse(503, "backendError", "Some zones are unreachable.")
	}
	return out, nil
}

var term = regexp.MustCompile(`^\s*(AND\b|OR\b|NOT\b|-)?\s*(\(?)\s*([\w.\-]+|"[^"]*")\s*(!=|=|:|\bne\b|\beq\b)\s*("[^"]*"|'[^']*'|[^\s()]+)\s*(\)?)`)

// parseFilter understands terms with = != : eq ne, one after the other, with AND, or in
// parentheses, or with OR between all of them:
// https://cloud.google.com/compute/docs/reference/rest/v1/instances/list#filter.
func parseFilter(text string) (func(dict) bool, error) {
	bad := refuse(400, "invalid", "Invalid value for field 'filter': '%s'. Invalid list filter expression.", text)
	var terms []func(dict) bool
	or, expressions, matches := false, 0, 0
	for rest := text; strings.TrimSpace(rest) != ""; {
		m := term.FindStringSubmatch(rest)
		if m == nil || (m[2] == "") != (m[6] == "") {
			return nil, bad
		}
		rest = rest[len(m[0]):]
		if len(terms) > 0 && (m[1] == "OR") != or && len(terms) > 1 {
			return nil, bad // both AND and OR
		}
		or = or || m[1] == "OR"
		field, op, want := strings.ReplaceAll(m[3], `"`, ""), m[4], strings.Trim(m[5], `"'`)
		if op == "eq" || op == "ne" {
			expressions++
		} else {
			matches++
		}
		fit := func(o dict) bool {
			got, there := lookUp(o, field)
			switch op {
			case "=":
				return there && got == want
			case "!=":
				return got != want
			case ":":
				return there && (want == "*" || strings.Contains(got, want))
			}
			re, err := regexp.Compile("^(?:" + want + ")$")
			return err == nil && (there && re.MatchString(got)) == (op == "eq")
		}
		if m[1] == "NOT" || m[1] == "-" {
			positive := fit
			fit = func(o dict) bool { return !positive(o) }
		}
		terms = append(terms, fit)
	}
	if expressions > 0 && matches > 0 {
		return nil, bad // the two languages do not mix
	}
	return func(o dict) bool {
		if or {
			return slices.ContainsFunc(terms, func(fit func(dict) bool) bool { return fit(o) })
		}
		return !slices.ContainsFunc(terms, func(fit func(dict) bool) bool { return !fit(o) })
	}, nil
}

func lookUp(o dict, field string) (string, bool) {
	first, rest, nested := strings.Cut(field, ".")
	v, ok := o[first]
	if inner, isDict := v.(dict); nested && isDict {
		return lookUp(inner, rest)
	}
	if !ok || nested {
		return "", false
	}
	return fmt.Sprint(v), true
}
