package reference

import (
	"strings"

	"github.com/skypilot-go/sky/internal/cli"
)

// noun is a command of the first level with everything below it; the first is
// sky itself.
type noun []cli.CommandDoc

func byNoun(docs []cli.CommandDoc) []noun {
	var out []noun
	for _, d := range docs {
		if strings.Count(d.Path, " ") <= 1 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], d)
	}
	return out
}

// file is the page's name without its ending, manual the manual page's.
func (n noun) file() string   { return strings.TrimPrefix(n.manual(), "sky-") }
func (n noun) manual() string { return strings.ReplaceAll(n[0].Path, " ", "-") }

func commandIndex(nouns []noun) []byte {
	var p page
	p.generated("Commands")
	p.paragraph("`sky COMMAND -h` shows the same. Manual pages are in [man](../../man/); `man -l docs/man/sky-launch.1` shows one.")
	var rows [][]string
	for _, n := range nouns {
		link := n.file() + ".md"
		for i, d := range n {
			at := link
			if i > 0 {
				at += "#" + strings.ReplaceAll(d.Path, " ", "-")
			}
			rows = append(rows, []string{"[" + code(d.Path) + "](" + at + ")", proseWithCode(d.Short)})
		}
	}
	p.table([]string{"Command", "What it does"}, rows)
	return []byte(p.String())
}

func commandPage(n noun) []byte {
	var p page
	p.generated(n[0].Path)
	for i, d := range n {
		if i > 0 {
			p.heading(2, d.Path)
		}
		p.paragraph(proseWithCode(d.Short))
		p.block("", d.Usage)
		p.long(d.Long)
		if d.Example != "" {
			p.block("sh", d.Example)
		}
		if len(d.Aliases) > 0 {
			p.paragraph("Also called " + codes(d.Aliases) + ".")
		}
		var rows [][]string
		for _, o := range d.Options {
			rows = append(rows, []string{code(o.Names), proseWithCode(o.Text)})
		}
		p.table([]string{"Option", "Meaning"}, rows)
	}
	return []byte(p.String())
}

// long writes the further text of a command; lines that begin with spaces are
// code.
func (p *page) long(text string) {
	var lines []string
	indented := false
	flush := func() {
		if len(lines) > 0 && indented {
			p.block("", strings.Join(lines, "\n"))
		} else if len(lines) > 0 {
			p.paragraph(proseWithCode(strings.Join(lines, "\n")))
		}
		lines = nil
	}
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\n")
		if l == "" || strings.HasPrefix(l, "  ") != indented {
			flush()
			indented = strings.HasPrefix(l, "  ")
		}
		if l != "" {
			lines = append(lines, strings.TrimPrefix(l, "    "))
		}
	}
	flush()
}

// proseWithCode is prose in which backquotes mark code.
func proseWithCode(text string) string {
	parts := strings.Split(text, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = prose(parts[i])
		}
	}
	return strings.Join(parts, "`")
}
