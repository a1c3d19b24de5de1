// Package table renders columns of text the way every listing of sky looks: no
// border, left aligned, two spaces after each column. The command line and the
// server's own texts share it.
package table

import (
	"strings"
	"unicode/utf8"
)

// gap stands after every cell, the last one of a row included.
const gap = 2

// Table is a header and rows of cells. Cells may hold ANSI colours, which take
// no room, and several lines.
type Table struct {
	Header []string
	Rows   [][]string
	// Right lists columns (by index) that are aligned right.
	Right map[int]bool
}

// New returns a table with the given column titles.
func New(header ...string) *Table { return &Table{Header: header} }

// Add appends a row. Missing cells are empty, surplus cells are dropped.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// String renders the table; every line ends with a newline. The header is there
// even when there is no row.
func (t *Table) String() string {
	widths := t.widths()
	var b strings.Builder
	t.writeRow(&b, widths, t.Header)
	for _, row := range t.Rows {
		t.writeRow(&b, widths, row)
	}
	return b.String()
}

// Fit narrows a column so far, and the first one, which holds the names to type, to half
// of the terminal.
const (
	least      = 4
	leastFirst = 30
)

// Fit shortens cells until the table takes at most that many columns of a terminal,
// or nothing more can be shortened; 0 leaves it as it is. The widest columns give way.
func (t *Table) Fit(columns int) *Table {
	widths := t.widths()
	over := -columns
	for _, w := range widths {
		over += w + gap
	}
	if columns <= 0 || over <= 0 {
		return t
	}
	for ; over > 0; over-- {
		widest := -1
		for i := range widths {
			to := least
			if i == 0 {
				to = max(leastFirst, columns/2)
			}
			if widths[i] > to && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	fitted := &Table{Right: t.Right, Header: shortened(t.Header, widths)}
	for _, row := range t.Rows {
		fitted.Rows = append(fitted.Rows, shortened(row, widths))
	}
	return fitted
}

func shortened(row []string, widths []int) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		if i < len(widths) {
			lines := strings.Split(cell, "\n")
			for n := range lines {
				lines[n] = shorten(lines[n], widths[i])
			}
			cell = strings.Join(lines, "\n")
		}
		out[i] = cell
	}
	return out
}

// shorten cuts a line to a width; colours stay whole.
func shorten(s string, width int) string {
	if Width(s) <= width {
		return s
	}
	var b strings.Builder
	n, cut := 0, false
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			e := escapeLen(s[i:])
			b.WriteString(s[i : i+e])
			i += e
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch w := runeWidth(r); {
		case cut:
		case n+w > width-1:
			b.WriteString("…")
			cut = true
		default:
			b.WriteRune(r)
			n += w
		}
	}
	return b.String()
}

// Width is how many columns of a terminal the table takes.
func (t *Table) Width() int {
	n := 0
	for _, w := range t.widths() {
		n += w + gap
	}
	return n
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.Header))
	measure := func(row []string) {
		for i := range widths {
			if i < len(row) {
				for line := range strings.SplitSeq(row[i], "\n") {
					widths[i] = max(widths[i], Width(line))
				}
			}
		}
	}
	measure(t.Header)
	for _, row := range t.Rows {
		measure(row)
	}
	return widths
}

func (t *Table) writeRow(b *strings.Builder, widths []int, row []string) {
	lines := 1
	for i := range widths {
		if i < len(row) {
			lines = max(lines, strings.Count(row[i], "\n")+1)
		}
	}
	for n := range lines {
		for i, w := range widths {
			cell := ""
			if i < len(row) {
				cell = nthLine(row[i], n)
			}
			pad := strings.Repeat(" ", w-Width(cell))
			if t.Right[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
			b.WriteString("  ")
		}
		b.WriteByte('\n')
	}
}

func nthLine(s string, n int) string {
	for ; n > 0; n-- {
		_, rest, ok := strings.Cut(s, "\n")
		if !ok {
			return ""
		}
		s = rest
	}
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// Width is how many columns s takes on a terminal: ANSI colours take none, wide
// characters two.
func Width(s string) int {
	n := 0
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		n += runeWidth(r)
	}
	return n
}

// Plain returns s without ANSI escape sequences.
func Plain(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// escapeLen is the length of the escape sequence that s begins with.
func escapeLen(s string) int {
	if len(s) < 2 || s[1] != '[' {
		return 1
	}
	for i := 2; i < len(s); i++ {
		if s[i] >= 0x40 && s[i] <= 0x7e {
			return i + 1
		}
	}
	return len(s)
}

// wide are the ranges of characters that take two columns, coarse but enough
// for names and the few pictures that sky prints.
var wide = [...][2]rune{
	{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
	{0xfe30, 0xfe4f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
}

func runeWidth(r rune) int {
	switch {
	case r < 0x20 || r >= 0x300 && r <= 0x36f || r == 0x200b || r == 0xfe0f:
		return 0
	case r < 0x1100:
		return 1
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}
