package table

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestString(t *testing.T) {
	tests := []struct {
		name string
		fill func(t *Table)
		want string
	}{
		{"header only", func(*Table) {}, "NAME  STATUS  \n"},
		{"widest cell counts", func(t *Table) { t.Add("a", "UP"); t.Add("longer-name", "STOPPED") },
			"NAME         STATUS   \na            UP       \nlonger-name  STOPPED  \n"},
		{"colours take no room", func(t *Table) { t.Add("\x1b[32ma\x1b[0m", "UP") },
			"NAME  STATUS  \n\x1b[32ma\x1b[0m     UP      \n"},
		{"missing cells are empty", func(t *Table) { t.Add("a") }, "NAME  STATUS  \na             \n"},
		{"several lines", func(t *Table) { t.Add("a\nbb", "UP") }, "NAME  STATUS  \na     UP      \nbb            \n"},
		{"right", func(t *Table) { t.Right = map[int]bool{0: true}; t.Add("a", "UP") }, "NAME  STATUS  \n   a  UP      \n"},
		{"wide characters", func(t *Table) { t.Add("日本語", "UP") }, "NAME    STATUS  \n日本語  UP      \n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tab := New("NAME", "STATUS")
			tt.fill(tab)
			if got := tab.String(); got != tt.want {
				t.Errorf("got:\n%q\nwant:\n%q", got, tt.want)
			}
		})
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"plain":                       "plain",
		"\x1b[1;32mgreen\x1b[0m text": "green text",
		"broken \x1b[":                "broken ",
		"\x1b":                        "",
		"\x1b[2Kcleared":              "cleared",
	} {
		if got := Plain(in); got != want {
			t.Errorf("Plain(%q) = %q, want %q", in, got, want)
		}
		if Width(in) != Width(want) {
			t.Errorf("Width(%q) = %d, want %d", in, Width(in), Width(want))
		}
	}
}

func FuzzWidth(f *testing.F) {
	f.Add("\x1b[31mx\x1b[0m\nüü")
	f.Fuzz(func(t *testing.T, s string) {
		tab := New("A", "B")
		tab.Add(s, "x")
		if tab.String() == "" {
			t.Error("empty table")
		}
	})
}

func TestFit(t *testing.T) {
	tab := New("NAME", "RESOURCES", "STATUS", "COMMAND").Whole("NAME", "STATUS")
	tab.Add("a-cluster-with-a-name-to-type", "2x(cpus=8, mem=32, m6i.2xlarge, disk=256)", "\x1b[32mUP\x1b[0m", "sky launch -c a-cluster-with-a-name-to-type examples/hello.yaml\nsecond line")
	tab.Add("b")
	if tab.Fit(0).String() != tab.String() || tab.Fit(500).String() != tab.String() {
		t.Error("a table that has room is changed")
	}
	for _, columns := range []int{80, 60, 10} {
		fitted := tab.Fit(columns)
		if w := fitted.Width(); columns >= 60 && w > columns {
			t.Errorf("%d columns: it takes %d:\n%s", columns, w, fitted)
		}
		if fitted.LeftOut != nil {
			t.Errorf("%d columns: %v are left out, and none may be", columns, fitted.LeftOut)
		}
		if name := strings.ReplaceAll(fitted.Rows[0][0], "\n", ""); name != "a-cluster-with-a-name-to-type" {
			t.Errorf("%d columns: the name is %q", columns, name)
		}
		if out := fitted.String(); !strings.Contains(out, "\x1b[32mUP\x1b[0m") || !strings.Contains(out, "…") || !strings.Contains(out, "sec") {
			t.Errorf("%d columns:\n%s", columns, out)
		}
	}
	if out := tab.Fit(80).String(); !strings.Contains(out, "2x(cpus=8, mem") || !strings.Contains(out, "a-cluster-with-a-name-to-type ") {
		t.Errorf("80 columns:\n%s", out)
	}
	tab.Add(strings.Repeat("n", 300)) // a name nobody types
	if w := tab.Fit(80).Width(); w > 80 {
		t.Errorf("with a long name it takes %d columns:\n%s", w, tab.Fit(80))
	}
}

// What gives way first: titles, cells, optional columns in their order, and names last.
func TestWhatFitGivesUp(t *testing.T) {
	fill := func() *Table {
		tab := New("NAME", "LONG_TITLE", "A", "B", "REASON").Whole("NAME").Prose("REASON").Optional("NONE", "B", "A").Ruled()
		tab.Right = map[int]bool{1: true, 3: true}
		tab.Add("0123456789abcdef", "7", "a123456789abcdef", "b123456789abcdef", "there is no room in that place today")
		return tab
	}
	for _, c := range []struct {
		columns int
		want    string
	}{
		{200, `
--------------------------------------------------------------------------------------------------------------
 NAME               LONG_TITLE   A                                 B   REASON
--------------------------------------------------------------------------------------------------------------
 0123456789abcdef            7   a123456789abcdef   b123456789abcdef   there is no room in that place today
--------------------------------------------------------------------------------------------------------------
`},
		{80, `
-------------------------------------------------------------------------------
 NAME              LONG_TITLE  A                         B  REASON
-------------------------------------------------------------------------------
 0123456789abcdef           7  a123456789a…  b123456789ab…  there is no room in
                                                            that place today
-------------------------------------------------------------------------------
`},
		{60, `
-----------------------------------------------------------
 NAME              LONG_  A             REASON
                   TITLE
-----------------------------------------------------------
 0123456789abcdef      7  a123456789a…  there is no room in
                                        that place today
-----------------------------------------------------------
`},
		{50, `
---------------------------------------------
 NAME              LONG_  REASON
                   TITLE
---------------------------------------------
 0123456789abcdef      7  there is no room in
                          that place today
---------------------------------------------
`},
	} {
		t.Run(strconv.Itoa(c.columns), func(t *testing.T) {
			trim := func(s string) string {
				lines := strings.Split(strings.TrimSpace(s), "\n")
				for i := range lines {
					lines[i] = strings.TrimRight(lines[i], " ")
				}
				return strings.Join(lines, "\n")
			}
			fitted := fill().Fit(c.columns)
			if got := trim(fitted.String()); got != trim(c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, trim(c.want))
			}
			if c.columns < 100 && fitted.Width() > c.columns {
				t.Errorf("it takes %d columns", fitted.Width())
			}
		})
	}
	if got := fill().Fit(50).LeftOut; !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("left out: %v", got)
	}
}

func TestLeftOutNote(t *testing.T) {
	for _, c := range []struct {
		titles  []string
		columns int
		want    string
	}{
		{nil, 80, ""},
		{[]string{"A"}, 80, "No room for A; all of them: | cat"},
		{[]string{"LAUNCHED", "TOT. DURATION"}, 80, "No room for LAUNCHED, TOT. DURATION; all of them: | cat"},
		{[]string{"LAUNCHED", "TOT. DURATION"}, 55, "No room for LAUNCHED, TOT. DURATION; all of them: | cat"},
		{[]string{"LAUNCHED", "TOT. DURATION"}, 54, "No room for LAUNCHED and 1 more; all of them: | cat"},
		{[]string{"LAUNCHED", "TOT. DURATION"}, 20, "No room for 2 columns; all of them: | cat"},
	} {
		if got := LeftOutNote(c.titles, c.columns); got != c.want {
			t.Errorf("%v in %d: %q, want %q", c.titles, c.columns, got, c.want)
		}
	}
}

// A table fits wherever its names in lines of 20 and its other columns at their least
// do, and whole cells keep every character.
func FuzzFit(f *testing.F) {
	f.Add("a-cluster", "1x(cpus=4)", "no room here at all, sorry", uint8(40))
	f.Add("日本語日本語日本語日本語", "\x1b[32mUP\x1b[0m", "", uint8(70))
	f.Fuzz(func(t *testing.T, name, cell, reason string, columns uint8) {
		name = strings.Map(func(r rune) rune {
			if r < ' ' {
				return -1
			}
			return r
		}, strings.ToValidUTF8(name, ""))
		tab := New("NAME", "CELL", "REASON", "MORE").Whole("NAME").Prose("REASON").Optional("MORE")
		tab.Add(name, cell, reason, cell)
		fitted := tab.Fit(int(columns))
		if w := fitted.Width(); columns >= 20+12+20+2*gap && w > int(columns) {
			t.Errorf("it takes %d of %d columns:\n%s", w, columns, fitted)
		}
		drop := strings.NewReplacer(" ", "", "\n", "").Replace
		if got := drop(fitted.Rows[0][0]); got != drop(name) {
			t.Errorf("the name %q became %q", name, got)
		}
	})
}
