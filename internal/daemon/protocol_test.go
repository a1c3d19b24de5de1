package daemon

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// protocol is the table of testdata/protocol.txt: what SkyPilot's clients read of
// each result. It says what has been held against it.
type protocol struct {
	results map[string][]field // by name; alternatives for different API versions
	none    map[string]bool
	objects map[string]*object
	enums   map[string]map[string]int // value → the first API version that knows it

	held map[string]bool // results that were held against the table
	seen map[string]bool // "Object.field" that had a value
}

type object struct {
	closed bool
	fields []field
}

// field is a key of an object, or a result.
type field struct {
	name         string
	of           *typ
	optional     bool
	since, below int // 0: any version
	extra        bool
	unsent       bool
}

func (f field) holds(version int) bool {
	return version >= f.since && (f.below == 0 || version < f.below)
}

// typ is a type of the table.
type typ struct {
	kind string // a word of the table's legend, "list", "map", "tuple", "or", or the name of an enum or object
	of   []*typ
	null bool
}

func readProtocol(t *testing.T) *protocol {
	t.Helper()
	text, err := os.ReadFile("testdata/protocol.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := &protocol{results: map[string][]field{}, none: map[string]bool{}, objects: map[string]*object{}, enums: map[string]map[string]int{},
		held: map[string]bool{}, seen: map[string]bool{}}
	var in *object
	for i, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case word == "enum":
			name, values, _ := strings.Cut(rest, " = ")
			p.enums[name] = map[string]int{}
			for _, v := range strings.Fields(strings.ReplaceAll(values, "Not Ready", "Not_Ready")) {
				v, since, _ := strings.Cut(strings.Trim(strings.ReplaceAll(v, "_Ready", " Ready"), "'"), "@")
				p.enums[name][v], _ = strconv.Atoi(since)
			}
		case word == "none":
			p.none[rest] = true
		case word == "result":
			name, of, _ := strings.Cut(rest, " = ")
			p.results[name] = append(p.results[name], readField(t, i+1, name, of))
		case word == "object", word == "closed":
			in = &object{closed: word == "closed"}
			p.objects[strings.TrimPrefix(rest, "object ")] = in
		case word == "":
			name, of, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			in.fields = append(in.fields, readField(t, i+1, name, of))
		default:
			t.Fatalf("line %d of the table: %s", i+1, line)
		}
	}
	return p
}

func readField(t *testing.T, line int, name, text string) field {
	t.Helper()
	name, optional := strings.CutSuffix(name, "?")
	f := field{name: name, optional: optional}
	r := &reader{text: text}
	f.of = r.read()
	words := strings.Fields(r.text)
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "extra":
			f.extra = true
		case "unsent":
			f.unsent = true
		case "since", "below":
			n, err := strconv.Atoi(words[i+1])
			if err != nil {
				t.Fatalf("line %d of the table: %v", line, err)
			}
			if words[i] == "since" {
				f.since = n
			} else {
				f.below = n
			}
			i++
		default:
			t.Fatalf("line %d of the table: %q", line, words[i])
		}
	}
	return f
}

// reader reads a type from the beginning of its text.
type reader struct{ text string }

func (r *reader) next(s string) bool {
	r.text = strings.TrimLeft(r.text, " ")
	rest, ok := strings.CutPrefix(r.text, s)
	if ok {
		r.text = rest
	}
	return ok
}

func (r *reader) read() *typ {
	t := r.one()
	for r.next("|") {
		t = &typ{kind: "or", of: []*typ{t, r.one()}}
	}
	return t
}

func (r *reader) one() *typ {
	t := &typ{}
	switch {
	case r.next("["):
		t.kind, t.of = "list", []*typ{r.read()}
		r.next("]")
	case r.next("{"):
		key := r.read()
		r.next(":")
		t.kind, t.of = "map", []*typ{key, r.read()}
		r.next("}")
	case r.next("("):
		t.kind = "tuple"
		for !r.next(")") {
			t.of = append(t.of, r.read())
			r.next(",")
		}
	case r.next("pickle "):
		t.kind, t.of = "pickle", []*typ{r.one()}
		return t
	default:
		end := strings.IndexFunc(r.text, func(c rune) bool { return strings.ContainsRune(" ?,:)]}|", c) })
		if end < 0 {
			end = len(r.text)
		}
		t.kind, r.text = r.text[:end], r.text[end:]
	}
	t.null = r.next("?")
	return t
}

// hold compares a result that a client of that version gets with the table.
func (p *protocol) hold(t *testing.T, name string, version int, result []byte) {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(result))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Errorf("%s at API %d is no JSON: %s", name, version, result)
		return
	}
	i := slices.IndexFunc(p.results[name], func(f field) bool { return f.holds(version) })
	if i < 0 {
		t.Errorf("the table has no result of %s at API %d", name, version)
		return
	}
	p.held[name] = true
	for _, wrong := range p.check(p.results[name][i].of, v, version, name) {
		t.Errorf("API %d: %s", version, wrong)
	}
}

// check lists what is wrong with a value.
func (p *protocol) check(of *typ, v any, version int, at string) (wrong []string) {
	no := func(format string, args ...any) []string { return []string{at + ": " + fmt.Sprintf(format, args...)} }
	shown := func() string { b, _ := json.Marshal(v); return string(b[:min(len(b), 100)]) }
	if v == nil && of.kind != "null" && of.kind != "pickle" && of.kind != "any" {
		if !of.null {
			return no("is null, want %s", of.kind)
		}
		return nil
	}
	s, isText := v.(string)
	switch of.kind {
	case "any":
		return nil
	case "null":
		if v != nil {
			return no("is %s, want null", shown())
		}
		return nil
	case "or":
		for _, o := range of.of {
			if len(p.check(o, v, version, at)) == 0 {
				return nil
			}
		}
		return no("is %s", shown())
	case "str":
		if !isText {
			return no("is %s, want text", shown())
		}
		return nil
	case "intstr":
		if _, err := strconv.Atoi(s); !isText || err != nil {
			return no("is %s, want a whole number as text", shown())
		}
		return nil
	case "bool":
		if _, ok := v.(bool); !ok {
			return no("is %s, want a boolean", shown())
		}
		return nil
	case "int":
		n, ok := v.(json.Number)
		if _, err := n.Int64(); !ok || err != nil {
			return no("is %s, want a whole number", shown())
		}
		return nil
	case "float":
		if _, ok := v.(json.Number); !ok {
			return no("is %s, want a number", shown())
		}
		return nil
	case "Infra":
		cloud, _, _ := strings.Cut(s, "/")
		if !slices.Contains(cloudsOfClients, cloud) {
			return no("is %s: clients know no such cloud", shown())
		}
		return nil
	case "pickle":
		if !isText {
			return no("is %s, want a pickle", shown())
		}
		inner, err := unpickle(s)
		if err != nil {
			return no("cannot be unpickled: %v", err)
		}
		return p.check(of.of[0], inner, version, at)
	case "list":
		list, ok := v.([]any)
		if !ok {
			return no("is %s, want a list", shown())
		}
		for i, e := range list {
			wrong = append(wrong, p.check(of.of[0], e, version, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return wrong
	case "tuple":
		list, ok := v.([]any)
		if !ok || len(list) != len(of.of) {
			return no("is %s, want a list of %d", shown(), len(of.of))
		}
		for i, e := range list {
			wrong = append(wrong, p.check(of.of[i], e, version, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return wrong
	case "map":
		m, ok := v.(map[string]any)
		if !ok {
			return no("is %s, want an object", shown())
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			wrong = append(wrong, p.check(of.of[0], k, version, at+" key "+k)...)
			wrong = append(wrong, p.check(of.of[1], m[k], version, at+"."+k)...)
		}
		return wrong
	}
	if values, ok := p.enums[of.kind]; ok {
		if since, known := values[s]; !isText || !known || version < since {
			return no("is %s, which no %s is", shown(), of.kind)
		}
		return nil
	}
	o, ok := p.objects[of.kind]
	if !ok {
		return no("the table has no %q", of.kind)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return no("is %s, want an object", shown())
	}
	known := map[string]bool{}
	for _, f := range o.fields {
		if !f.holds(version) {
			continue
		}
		known[f.name] = true
		value, there := m[f.name]
		switch {
		case !there && !f.optional && !f.extra:
			wrong = append(wrong, at+"."+f.name+" is missing")
		case !there, value == nil && f.optional:
		default:
			wrong = append(wrong, p.check(f.of, value, version, at+"."+f.name)...)
		}
		if value != nil && !none(value) {
			p.seen[of.kind+"."+f.name] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !known[k] && (o.closed || !slices.ContainsFunc(o.fields, func(f field) bool { return f.name == k })) {
			wrong = append(wrong, at+"."+k+" is not in the table")
		}
	}
	return wrong
}

// none is a pickled None.
func none(v any) bool {
	s, ok := v.(string)
	return ok && s == "gAROLg=="
}

// whole fails the test for what was never held against the table: then the table
// says nothing about it.
func (p *protocol) whole(t *testing.T) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(p.results)) {
		if !p.held[name] {
			t.Errorf("no result of %q was looked at", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.none)) {
		if !p.held[name] {
			t.Errorf("nobody asked for %q", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.objects)) {
		for _, f := range p.objects[name].fields {
			if seen := p.seen[name+"."+f.name]; seen == f.unsent && f.of.kind != "null" {
				t.Errorf("%s.%s is unsent in the table: %v; it had a value: %v", name, f.name, f.unsent, seen)
			}
		}
	}
}

// cloudsOfClients are the clouds that clients know.
var cloudsOfClients = strings.Fields(`aws azure cudo do digitalocean fluidstack gcp hyperbolic ibm kubernetes k8s lambda mithril nebius oci
	paperspace primeintellect runpod scp seeweb shadeform slurm ssh vast verda vsphere yotta`)

// unpickle reads the opcodes that the protocol's description names, as data: an
// object is its state, a call its only argument.
func unpickle(text string) (any, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	type mark struct{}
	var stack []any
	pop := func() any {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		return v
	}
	toMark := func() []any {
		i := len(stack) - 1
		for stack[i] != any(mark{}) {
			i--
		}
		list := slices.Clone(stack[i+1:])
		stack = stack[:i]
		return list
	}
	plain := func(v any) any { // lists and maps are behind pointers on the stack, where marks are found by comparing
		switch v := v.(type) {
		case *[]any:
			return *v
		case *map[string]any:
			return *v
		}
		return v
	}
	for i := 0; i < len(b); {
		op := b[i]
		i++
		switch op {
		case 0x80:
			i++
		case 'N':
			stack = append(stack, nil)
		case 0x88, 0x89:
			stack = append(stack, op == 0x88)
		case 'J':
			stack = append(stack, json.Number(strconv.Itoa(int(int32(binary.LittleEndian.Uint32(b[i:]))))))
			i += 4
		case 'G':
			stack = append(stack, json.Number(strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(b[i:])), 'g', -1, 64)))
			i += 8
		case 'X':
			n := int(binary.LittleEndian.Uint32(b[i:]))
			stack = append(stack, string(b[i+4:i+4+n]))
			i += 4 + n
		case '(':
			stack = append(stack, mark{})
		case 't':
			list := toMark()
			for k := range list {
				list[k] = plain(list[k])
			}
			stack = append(stack, &list)
		case ')', ']':
			stack = append(stack, &[]any{})
		case 'e':
			list := toMark()
			top := stack[len(stack)-1].(*[]any)
			for _, v := range list {
				*top = append(*top, plain(v))
			}
		case '}':
			stack = append(stack, &map[string]any{})
		case 'u':
			list := toMark()
			top := stack[len(stack)-1].(*map[string]any)
			for k := 0; k < len(list); k += 2 {
				(*top)[list[k].(string)] = plain(list[k+1])
			}
		case 0x93:
			name, module := pop(), pop()
			stack = append(stack, fmt.Sprint(module, ".", name))
		case 'R':
			args := *pop().(*[]any)
			pop()
			stack = append(stack, args[0])
			if m, ok := args[0].(map[string]any); ok {
				stack[len(stack)-1] = &m
			}
		case 0x81: // the class stays in place of the object, until its state comes
			pop()
		case 'b':
			state := pop()
			pop()
			stack = append(stack, state)
		case '.':
			return plain(pop()), nil
		default:
			return nil, fmt.Errorf("opcode %#x", op)
		}
	}
	return nil, fmt.Errorf("no end")
}
