// Package ignore decides which files of a tree are left out, with the syntax
// and the precedence of gitignore files: the last matching line of a file
// counts, "!" takes back, and the file nearest to the entry is asked first.
//
// A walk makes one [Matcher] per folder with [Matcher.In] and asks it about
// the entries of that folder. A folder that is ignored must not be entered:
// nothing below it can be taken back.
package ignore

import "strings"

// Rules are the lines of one ignore file.
type Rules []rule

// A Matcher answers for the entries of one folder. The nil Matcher ignores
// nothing. Matchers may be used concurrently.
type Matcher struct {
	rules Rules
	above string   // where the tree lies in its repository, "" or ending in "/"
	base  string   // folder that the rules are relative to, "" or ending in "/"
	up    *Matcher // asked when no rule speaks of the entry
}

// In returns the matcher for a folder whose own ignore file has the given
// rules; folder is its path below the top, with slashes, "" for the top.
func (m *Matcher) In(folder string, rules Rules) *Matcher {
	if len(rules) == 0 {
		return m
	}
	if folder != "" {
		folder += "/"
	}
	return &Matcher{rules: rules, base: folder, up: m}
}

// InRepository returns the matcher for a tree that lies at folder, with slashes, in
// a repository whose top the rules are relative to; "" is the top itself.
func (m *Matcher) InRepository(folder string, rules Rules) *Matcher {
	if len(rules) == 0 {
		return m
	}
	if folder != "" {
		folder += "/"
	}
	return &Matcher{rules: rules, above: folder, up: m}
}

// Ignored reports whether the entry is left out; path is relative to the top.
func (m *Matcher) Ignored(path string, dir bool) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for ; m != nil; m = m.up {
		below := m.above + strings.TrimPrefix(path, m.base)
		for i := len(m.rules) - 1; i >= 0; i-- {
			if r := &m.rules[i]; r.matches(below, name, dir) {
				return !r.negate
			}
		}
	}
	return false
}
