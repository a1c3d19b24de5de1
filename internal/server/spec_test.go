package server

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// specified is one route as the protocol's description has it.
type specified struct {
	method, path string
	kind         string   // A: a request, L: one whose answer is its log, S: answered directly
	fields       []string // that the body may have, or another body of the same row
}

var (
	sectionHead = regexp.MustCompile(`^### 3\.\d+ `)
	under       = regexp.MustCompile("prefix `([^`]+)`")
	routePart   = regexp.MustCompile("\\b(?:GET|POST|DELETE)\\b|`[^`]+`|\\b[ASL]\\b|;")
	bodyField   = regexp.MustCompile("(^|[^=/`])`([^`]+)`")
	fieldName   = regexp.MustCompile(`[a-z][a-z0-9_]*`)
	inParens    = regexp.MustCompile(`\([^)]*\)`)
	inBraces    = regexp.MustCompile(`\{([a-z_-]+(?:,[a-z_-]+)+)\}`)
)

// passedOver are fields that no client sets to anything but their defaults.
var passedOver = map[string]bool{"is_launched_by_jobs_controller": true, "is_launched_by_sky_serve_controller": true, "disable_controller_check": true}

// readSpec reads the tables of routes, which are sections 3.1 and on.
func readSpec(text string) (out []specified) {
	prefix, head := "", false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "## "), strings.HasPrefix(line, "### ") && !sectionHead.MatchString(line):
			head = false
		case sectionHead.MatchString(line):
			prefix, head = "", true
			if m := under.FindStringSubmatch(line); m != nil {
				prefix = m[1]
			}
		case head && strings.HasPrefix(line, "| ") && strings.Contains(line, "`/") || head && strings.HasPrefix(line, "| POST `..."):
			cells := strings.Split(strings.TrimSpace(line), "|")
			out = append(out, readRow(prefix, cells[1], cells[2], out)...)
		}
	}
	return out
}

func readRow(prefix, routes, body string, before []specified) (out []specified) {
	var fields []string
	for _, m := range bodyField.FindAllStringSubmatch(inParens.ReplaceAllString(body, ""), -1) {
		for word := range strings.FieldsSeq(m[2]) { // some cells list names in one pair of backticks
			if name := fieldName.FindString(word); name != "" && strings.HasPrefix(word, name) && !passedOver[name] {
				fields = append(fields, name)
			}
		}
	}
	if strings.Contains(body, "multipart") {
		fields = nil // no JSON
	}
	// A kind holds for all routes of the cell before it.
	type route struct{ method, path string }
	var methods []string
	var waiting []route
	named := false // a route since the last method
	for _, part := range routePart.FindAllString(routes, -1) {
		switch {
		case part == "GET" || part == "POST" || part == "DELETE":
			if named {
				methods, named = nil, false
			}
			methods = append(methods, part)
		case strings.HasPrefix(part, "`/") || strings.HasPrefix(part, "`..."):
			path := strings.Trim(part, "`")
			if rest, same := strings.CutPrefix(path, "..."); same {
				path = before[len(before)-1].path + rest
			}
			path, _, _ = strings.Cut(path, "[?")
			path, _, _ = strings.Cut(path, "?")
			if n := len(waiting); n > 0 && strings.Count(path, "/") == 1 && strings.Count(waiting[n-1].path, "/") > 1 {
				path = waiting[n-1].path[:strings.LastIndex(waiting[n-1].path, "/")] + path // `/users/create`, `/update`
			}
			if len(methods) == 0 {
				methods = []string{"POST"}
			}
			named = true
			for _, m := range methods {
				waiting = append(waiting, route{m, path})
			}
		case len(part) == 1 && part != ";":
			for _, w := range waiting {
				for _, p := range spelled(w.path) {
					out = append(out, specified{w.method, prefix + p, part, fields})
				}
			}
			waiting = nil
		}
	}
	return out
}

// spelled are the paths that one with braces or an optional part stands for.
func spelled(path string) []string {
	if i, j := strings.Index(path, "["), strings.Index(path, "]"); i >= 0 && j > i {
		return append(spelled(path[:i]+path[j+1:]), spelled(path[:i]+path[i+1:j]+path[j+1:])...)
	}
	m := inBraces.FindStringSubmatchIndex(path)
	if m == nil {
		return []string{path}
	}
	var out []string
	for choice := range strings.SplitSeq(path[m[2]:m[3]], ",") {
		out = append(out, spelled(path[:m[0]]+choice+path[m[1]:])...)
	}
	return out
}

// TestRoutesAreThoseOfTheProtocol reads the description that clients were written
// against: every route of it is here, answers in its way, and takes its fields.
func TestRoutesAreThoseOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../../../shared/spec/rest-api.md")
	if err != nil {
		t.Skip("the description of the protocol is not here: ", err)
	}
	ours := map[string]Route{}
	for _, r := range Routes() {
		ours[r.Method+" "+r.Path] = r
	}
	kinds := map[string][]Kind{"A": {Async}, "L": {Log}, "S": {Direct}}
	spec := readSpec(string(text))
	if len(spec) < 100 {
		t.Fatalf("only %d routes were understood", len(spec))
	}
	has := map[string]bool{}
	rows := map[string]map[string]bool{} // fields that some route of a row takes
	key := func(s specified) string { return strings.Join(s.fields, " ") }
	for _, s := range spec {
		r, there := ours[s.method+" "+s.path]
		if !there {
			t.Errorf("%s %s is missing", s.method, s.path)
			continue
		}
		has[s.method+" "+s.path] = true
		if !slices.Contains(kinds[s.kind], r.Kind) {
			t.Errorf("%s %s is of kind %d, not %s", s.method, s.path, r.Kind, s.kind)
		}
		if rows[key(s)] == nil {
			rows[key(s)] = map[string]bool{}
		}
		maps.Copy(rows[key(s)], takes(r))
	}
	for _, s := range spec {
		for _, f := range s.fields {
			if rows[key(s)] == nil {
				break // no route of the row is here
			}
			if !rows[key(s)][f] {
				t.Errorf("%s %s does not take %s", s.method, s.path, f)
				rows[key(s)][f] = true // once a row
			}
		}
	}
	t.Logf("%d routes of the protocol, %d of our own", len(has), len(ours)-len(has))
}

// takes are the names of the fields and parameters of a route.
func takes(r Route) map[string]bool {
	names := map[string]bool{}
	for name := range r.Query {
		names[name] = true
	}
	if r.Body == nil || r.Body.of.Kind() != reflect.Struct {
		return names
	}
	for _, f := range reflect.VisibleFields(r.Body.of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}
