// Package table renders columns of text the way every listing of sky looks: no
// border, left aligned, two spaces after each column. The command line and the
// server's own texts share it.
package table

import (
	"math"
	"slices"
	"strconv"
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
	// LeftOut are the titles of the columns that [Table.Fit] left out, the most important
	// first.
	LeftOut []string

	whole    []string // titles of columns whose cells are not shortened
	prose    []string // titles of columns whose cells are sentences and lists
	optional []string // titles of columns that may be left out, in this order
	ruled    bool
	fitted   bool
}

// New returns a table with the given column titles.
func New(header ...string) *Table { return &Table{Header: header} }

// Whole names the columns that people copy from or decide by, such as names, ids and
// statuses: [Table.Fit] never shortens their cells, but wraps those that are too long.
// Without it that is the first column. Titles that the table lacks are ignored.
func (t *Table) Whole(titles ...string) *Table {
	t.whole = titles
	return t
}

// Prose names the columns that hold sentences or lists: [Table.Fit] wraps their cells.
func (t *Table) Prose(titles ...string) *Table {
	t.prose = titles
	return t
}

// Optional names the columns that [Table.Fit] may leave out, the least important first.
// Titles that the table lacks are ignored.
func (t *Table) Optional(titles ...string) *Table {
	t.optional = titles
	return t
}

// Ruled makes a table with dashed lines around and below its header.
func (t *Table) Ruled() *Table {
	t.ruled = true
	return t
}

// Add appends a row. Missing cells are empty, surplus cells are dropped.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// String renders the table; every line ends with a newline. The header is there
// even when there is no row.
func (t *Table) String() string {
	widths := t.widths()
	var b strings.Builder
	rule := ""
	if t.ruled {
		rule = strings.Repeat("-", t.Width()) + "\n"
	}
	b.WriteString(rule)
	t.writeRow(&b, widths, t.Header)
	b.WriteString(rule)
	for _, row := range t.Rows {
		t.writeRow(&b, widths, row)
	}
	b.WriteString(rule)
	return b.String()
}

// What Fit keeps of a column: that much of cells that are shortened, and lines of that
// length of cells that are wrapped.
const (
	leastShortened = 12
	leastWrapped   = 20
)

// Fit makes the table take at most that many columns of a terminal; 0 leaves it as it is.
// It wraps titles and prose, shortens other cells to a readable part, wraps what must stay
// whole to half of the terminal, leaves optional columns out, and wraps the rest further;
// no further than needed. What is wider then is for a terminal that is too narrow.
func (t *Table) Fit(columns int) *Table {
	if columns <= 0 || t.Width() <= columns {
		return t
	}
	f := new(*t)
	f.fitted = true
	if f.whole == nil && len(f.Header) > 0 {
		f.whole = f.Header[:1]
	}
	names := max(leastWrapped, columns/2) // lines of whole cells while there are optional columns
	f.leaveOut(f.noRoom(f.least(names, leastWrapped), columns))
	widths := f.widths()
	for _, least := range [...][]int{f.least(math.MaxInt, leastWrapped), f.least(names, leastWrapped), f.least(leastWrapped, leastWrapped), f.least(leastShortened, leastShortened)} {
		for over := f.room(widths) - columns; over > 0; over-- {
			widest := -1
			for i, w := range widths {
				if w > least[i] && (widest < 0 || w > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
	titles, rows := f.Header, f.Rows
	f.Header = make([]string, len(titles))
	for i, title := range titles {
		f.Header[i] = strings.Join(wrapTitle(title, widths[i]), "\n")
	}
	f.Rows = make([][]string, len(rows))
	for n, row := range rows {
		f.Rows[n] = fitRow(row, widths, func(i int) bool { return f.wraps(titles[i]) })
	}
	return f
}

// wraps reports whether the cells of a column are wrapped and not shortened.
func (t *Table) wraps(title string) bool {
	return slices.Contains(t.whole, title) || slices.Contains(t.prose, title)
}

// least is how narrow columns may become, if lines of whole cells and of prose keep that
// many characters.
func (t *Table) least(names, prose int) []int {
	widths := t.cellWidths()
	for i, title := range t.Header {
		to := leastShortened
		switch {
		case slices.Contains(t.whole, title):
			to = names
		case slices.Contains(t.prose, title):
			to = prose
		}
		widths[i] = min(widths[i], to)
		for _, word := range titleWords(title) {
			widths[i] = max(widths[i], Width(strings.TrimSuffix(word, " ")))
		}
	}
	return widths
}

// titleWords are the parts of a title between which it may be wrapped.
func titleWords(title string) []string {
	var words []string
	from := 0
	for i, r := range title {
		if r == ' ' || r == '_' {
			words, from = append(words, title[from:i+1]), i+1
		}
	}
	return append(words, title[from:])
}

// wrapTitle breaks a title between its words.
func wrapTitle(title string, width int) []string {
	var lines []string
	line := ""
	for _, word := range titleWords(title) {
		if line != "" && Width(strings.TrimSuffix(line+word, " ")) > width {
			lines, line = append(lines, strings.TrimSuffix(line, " ")), ""
		}
		line += word
	}
	return append(lines, line)
}

// noRoom lists the optional columns that have no room beside more important ones, if
// columns are that wide; the most important first.
func (t *Table) noRoom(widths []int, columns int) (titles []string) {
	shown := map[string]bool{}
	for _, title := range t.Header {
		shown[title] = !slices.Contains(t.optional, title)
	}
	room := func() int {
		var of []int
		for i, title := range t.Header {
			if shown[title] {
				of = append(of, widths[i])
			}
		}
		return t.room(of)
	}
	for _, title := range slices.Backward(t.optional) {
		if _, ok := shown[title]; !ok {
			continue
		}
		shown[title] = true
		if room() > columns {
			shown[title] = false
			titles = append(titles, title)
		}
	}
	return titles
}

// leaveOut removes columns.
func (t *Table) leaveOut(titles []string) {
	header, rows, right := t.Header, t.Rows, t.Right
	t.LeftOut, t.Header, t.Rows, t.Right = titles, nil, make([][]string, len(rows)), map[int]bool{}
	for i, title := range header {
		if slices.Contains(titles, title) {
			continue
		}
		t.Right[len(t.Header)] = right[i]
		t.Header = append(t.Header, title)
		for n, row := range rows {
			if i < len(row) {
				t.Rows[n] = append(t.Rows[n], row[i])
			}
		}
	}
}

// fitRow makes cells as narrow as their columns.
func fitRow(row []string, widths []int, wraps func(i int) bool) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		if i < len(widths) {
			var lines []string
			for line := range strings.SplitSeq(cell, "\n") {
				switch {
				case Width(line) <= widths[i]:
					lines = append(lines, line)
				case wraps(i):
					lines = append(lines, wrap(line, widths[i])...)
				default:
					lines = append(lines, shorten(line, widths[i]))
				}
			}
			cell = strings.Join(lines, "\n")
		}
		out[i] = cell
	}
	return out
}

// wrap breaks a line into lines of a width, at spaces where there are any. Colours, which
// cannot span lines, are lost.
func wrap(s string, width int) []string {
	var lines []string
	from, space, n := 0, -1, 0
	s = Plain(s)
	for i, r := range s {
		w := runeWidth(r)
		if n+w > width && i > from {
			if space > from {
				lines, from = append(lines, s[from:space]), space+1
			} else {
				lines, from = append(lines, s[from:i]), i
			}
			n, space = Width(s[from:i]), -1
		}
		if r == ' ' {
			space = i
		}
		n += w
	}
	return append(lines, s[from:])
}

// LeftOutNote says in one line of at most that many columns which columns [Table.Fit] left
// out and how to see them; "" if it left out none.
func LeftOutNote(titles []string, columns int) string {
	if len(titles) == 0 {
		return ""
	}
	const tail = "; all of them: | cat"
	for n := len(titles); n > 0; n-- {
		text := "No room for " + strings.Join(titles[:n], ", ")
		if more := len(titles) - n; more > 0 {
			text += " and " + strconv.Itoa(more) + " more"
		}
		if Width(text+tail) <= columns {
			return text + tail
		}
	}
	return "No room for " + strconv.Itoa(len(titles)) + " columns" + tail
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
func (t *Table) Width() int { return t.room(t.widths()) }

// room is how many columns of a terminal cells of these widths take.
func (t *Table) room(widths []int) int {
	before, between := t.gaps()
	n := before
	for _, w := range widths {
		n += w + between
	}
	if t.fitted && len(widths) > 0 {
		n -= between
	}
	return n
}

// gaps are the spaces before a row and after each cell. The last cell of a fitted table,
// which has no column to spare, has none.
func (t *Table) gaps() (before, between int) {
	switch {
	case t.ruled && !t.fitted:
		return 1, gap + 1
	case t.ruled:
		return 1, gap
	}
	return 0, gap
}

func (t *Table) widths() []int {
	widths := t.cellWidths()
	widen(widths, t.Header)
	return widths
}

// cellWidths are the widths of columns without their titles.
func (t *Table) cellWidths() []int {
	widths := make([]int, len(t.Header))
	for _, row := range t.Rows {
		widen(widths, row)
	}
	return widths
}

// widen makes columns wide enough for a row.
func widen(widths []int, row []string) {
	for i := range widths {
		if i < len(row) {
			for line := range strings.SplitSeq(row[i], "\n") {
				widths[i] = max(widths[i], Width(line))
			}
		}
	}
}

func (t *Table) writeRow(b *strings.Builder, widths []int, row []string) {
	before, between := t.gaps()
	lines := 1
	for i := range widths {
		if i < len(row) {
			lines = max(lines, strings.Count(row[i], "\n")+1)
		}
	}
	for n := range lines {
		b.WriteString(strings.Repeat(" ", before))
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
			if i < len(widths)-1 || !t.fitted {
				b.WriteString(strings.Repeat(" ", between))
			}
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
