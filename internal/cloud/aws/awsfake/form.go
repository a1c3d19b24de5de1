package awsfake

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// indexed reads members of a list: Prefix.1, Prefix.2, …
func indexed(f url.Values, prefix string) []string {
	var out []string
	for n := 1; ; n++ {
		v, ok := f[prefix+"."+strconv.Itoa(n)]
		if !ok {
			return out
		}
		out = append(out, v[0])
	}
}

// filter is one condition of a list.
type filter struct {
	name   string
	values []*regexp.Regexp
}

func filtersOf(f url.Values) []filter {
	var out []filter
	for n := 1; ; n++ {
		prefix := "Filter." + strconv.Itoa(n)
		name, ok := f[prefix+".Name"]
		if !ok {
			return out
		}
		one := filter{name: name[0]}
		for _, v := range indexed(f, prefix+".Value") {
			one.values = append(one.values, pattern(v))
		}
		out = append(out, one)
	}
}

// pattern reads * and ? as wildcards, unless a backslash is before them.
func pattern(v string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(v); i++ {
		switch {
		case v[i] == '\\' && i+1 < len(v):
			i++
			b.WriteString(regexp.QuoteMeta(v[i : i+1]))
		case v[i] == '*':
			b.WriteString(".*")
		case v[i] == '?':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(v[i : i+1]))
		}
	}
	return regexp.MustCompile(b.String() + "$")
}

// fits reports whether a thing with these tags and fields passes all filters.
func fits(filters []filter, tags, fields map[string]string) bool {
	for _, f := range filters {
		var have []string
		switch {
		case f.name == "tag-key":
			for k := range tags {
				have = append(have, k)
			}
		case strings.HasPrefix(f.name, "tag:"):
			if v, ok := tags[strings.TrimPrefix(f.name, "tag:")]; ok {
				have = append(have, v)
			}
		default:
			have = append(have, fields[f.name])
		}
		ok := slices.ContainsFunc(have, func(h string) bool {
			return slices.ContainsFunc(f.values, func(p *regexp.Regexp) bool { return p.MatchString(h) })
		})
		if !ok {
			return false
		}
	}
	return true
}

// tagsOf reads the tags for a kind of thing from TagSpecification.N.
func tagsOf(f url.Values, kind string) map[string]string {
	tags := map[string]string{}
	for n := 1; ; n++ {
		prefix := "TagSpecification." + strconv.Itoa(n)
		k, ok := f[prefix+".ResourceType"]
		if !ok {
			return tags
		}
		if k[0] != kind {
			continue
		}
		for m := 1; ; m++ {
			key, ok := f[fmt.Sprintf("%s.Tag.%d.Key", prefix, m)]
			if !ok {
				break
			}
			tags[key[0]] = f.Get(fmt.Sprintf("%s.Tag.%d.Value", prefix, m))
		}
	}
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

func tagSet(m map[string]string) []tag {
	out := []tag{}
	for k, v := range m {
		out = append(out, tag{k, v})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}

func hash(f url.Values, without ...string) string {
	h := sha256.New()
	for _, k := range slices.Sorted(keys(f)) {
		if !slices.Contains(without, k) {
			fmt.Fprintln(h, k, f[k])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func keys(f url.Values) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range f {
			if !yield(k) {
				return
			}
		}
	}
}
