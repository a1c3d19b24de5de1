package reference

import (
	"fmt"
	"strings"
)

// manPage is a manual page in the man macros, which every reader knows.
func manPage(n noun) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.\" Written by go generate ./internal/reference; do not edit.`)
	line(`.TH %s 1 "" "sky" "User Commands"`, strings.ToUpper(roff(n.manual())))
	line(".SH NAME")
	line(`%s \- %s`, roff(n.manual()), roff(strings.TrimSuffix(n[0].Short, ".")))
	for i, d := range n {
		if i == 0 {
			line(".SH SYNOPSIS")
		} else {
			line(".SH %s", strings.ToUpper(roff(d.Path)))
			line("%s", text(d.Short))
			line(".PP")
		}
		line(".B %s", roff(d.Usage))
		if d.Long != "" {
			if i == 0 {
				line(".SH DESCRIPTION")
			} else {
				line(".PP")
			}
			line("%s", paragraphs(d.Long))
		}
		if i == 0 && len(d.Options) > 0 {
			line(".SH OPTIONS")
		}
		for _, o := range d.Options {
			line(".TP")
			line(`\fB%s\fR`, roff(o.Names))
			line("%s", text(o.Text))
		}
		if d.Example != "" {
			if i == 0 {
				line(".SH EXAMPLES")
			} else {
				line(".PP")
				line("Examples:")
			}
			line(".nf")
			for l := range strings.Lines(d.Example) {
				line("%s", text(strings.TrimRight(l, "\n")))
			}
			line(".fi")
		}
		if i == 0 && n[0].Path == "sky" {
			line(".SH COMMANDS")
			for _, c := range d.Commands {
				line(".BR sky\\-%s (1)", roff(c))
				line(".br")
			}
		}
	}
	line(".SH SEE ALSO")
	if n[0].Path == "sky" {
		line("sky help")
	} else {
		line(".BR sky (1)")
	}
	return []byte(b.String())
}

// roff escapes text for use anywhere in a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(s)
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// text escapes a line of text; no line of text is taken for a request.
func text(s string) string {
	s = roff(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// paragraphs keeps empty lines as breaks and indented lines as they are.
func paragraphs(s string) string {
	var out []string
	literal := false
	for l := range strings.Lines(s) {
		l = strings.TrimRight(l, "\n")
		if indented := strings.HasPrefix(l, "  "); indented != literal && l != "" {
			out = append(out, map[bool]string{true: ".nf", false: ".fi"}[indented])
			literal = indented
		}
		if l == "" {
			out = append(out, ".PP")
		} else {
			out = append(out, text(l))
		}
	}
	if literal {
		out = append(out, ".fi")
	}
	return strings.Join(out, "\n")
}
