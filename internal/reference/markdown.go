package reference

import (
	"fmt"
	"strings"
)

// page is Markdown being written.
type page struct{ strings.Builder }

// generated opens every page.
func (p *page) generated(title string) {
	fmt.Fprintf(p, "<!-- Written by go generate ./internal/reference; do not edit. -->\n\n# %s\n", title)
}

func (p *page) heading(level int, text string) {
	fmt.Fprintf(p, "\n%s %s\n", strings.Repeat("#", level), text)
}

func (p *page) paragraph(text string) {
	if text != "" {
		p.WriteString("\n" + text + "\n")
	}
}

func (p *page) block(language, text string) {
	fmt.Fprintf(p, "\n```%s\n%s\n```\n", language, strings.TrimRight(text, "\n"))
}

// table writes rows whose cells are Markdown; nothing without rows.
func (p *page) table(header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.WriteByte('\n')
	p.row(header)
	p.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, r := range rows {
		p.row(r)
	}
}

func (p *page) row(cells []string) {
	for _, c := range cells {
		p.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
	}
	p.WriteString("|\n")
}

// code marks text as code, whatever it holds; "" stays.
func code(text string) string {
	switch {
	case text == "":
		return ""
	case strings.Contains(text, "`"):
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

// prose makes text that comes from the code safe as Markdown.
func prose(text string) string {
	return strings.NewReplacer("<", `\<`, ">", `\>`, "*", `\*`).Replace(text)
}

// codes is a list of words as code.
func codes(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = code(w)
	}
	return strings.Join(out, ", ")
}
