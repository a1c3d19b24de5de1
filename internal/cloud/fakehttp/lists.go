package fakehttp

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
)

// Items are those of a list, nil for none.
func Items(list any) []any {
	all, _ := list.([]any)
	return all
}

// Page is a part of a list, from a number on, and where the next part begins; 0: there is
// none.
func Page(all []Dict, from, size int) (part []Dict, next int) {
	from = max(0, min(from, len(all)))
	to := min(from+max(size, 1), len(all))
	if to < len(all) {
		next = to
	}
	return append([]Dict{}, all[from:to]...), next
}

// Pages is how a cloud lets callers ask for the parts of a list: the names of parameters
// of the query. The zero value gives the whole list.
type Pages struct {
	Token  string // where a part begins: an offset, such as a Part's Next
	Number string // instead of that, how many parts are before it
	First  int    // the number of the first part
	Size   string // how many things a part has
	Usual  int    // so many unless Size says another number; 0: all
	Most   int    // and never more; 0: as many as are asked for
	Strict bool   // numbers that make no sense are refused, and not replaced
}

// Part is what one call gets of a list.
type Part struct {
	Items             []Dict
	From, Size, Total int // of the list's things: before this part, in a whole part, in all parts
	Next              any // the token of the next part; nil: there is none
}

// Part is the part that a query asks for.
func (p Pages) Part(q url.Values, all []Dict) (Part, error) {
	usual := cmp.Or(p.Usual, len(all), 1)
	size, err := p.number(q, p.Size, usual, 1, cmp.Or(p.Most, int(^uint(0)>>1)))
	if err != nil {
		return Part{}, err
	}
	out := Part{Size: size, Total: len(all)}
	if p.Number != "" {
		n, err := p.number(q, p.Number, p.First, p.First, int(^uint(0)>>1)/size)
		if err != nil {
			return Part{}, err
		}
		out.From = (n - p.First) * size
	} else if out.From, err = p.number(q, p.Token, 0, 0, int(^uint(0)>>1)); err != nil {
		return Part{}, err
	}
	next := 0
	if out.Items, next = Page(all, out.From, size); next > 0 {
		out.Next = strconv.Itoa(next)
	}
	return out, nil
}

func (p Pages) number(q url.Values, name string, usual, least, most int) (int, error) {
	text := q.Get(name)
	if name == "" || text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case p.Strict && (err != nil || n < least || n > most):
		return 0, fluffyapi.Errorf(fluffyapi.Invalid, "%s: %s is not from %d to %d", name, text, least, most)
	case err != nil || n < least:
		return usual, nil
	}
	return min(n, most), nil
}

// Fitting are the things that a query asks for: those whose fields have one of the values
// that it names, where it names any. A field of an object in a thing is named with a dot.
func Fitting(q url.Values, all []Dict, fields ...string) []Dict {
	return slices.DeleteFunc(slices.Clone(all), func(o Dict) bool {
		return slices.ContainsFunc(fields, func(field string) bool {
			return q.Get(field) != "" && !slices.Contains(q[field], fmt.Sprint(at(o, field)))
		})
	})
}

func at(o Dict, field string) any {
	if outer, inner, ok := strings.Cut(field, "."); ok {
		in, _ := o[outer].(Dict)
		return at(in, inner)
	}
	return o[field]
}

// Ports is a range of ports as providers write it.
func Ports(from, to any) string {
	if fmt.Sprint(from) == fmt.Sprint(to) {
		return fmt.Sprint(from)
	}
	return fmt.Sprint(from, "-", to)
}
