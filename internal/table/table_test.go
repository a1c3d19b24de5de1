package table

import (
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
	tab := New("NAME", "RESOURCES", "STATUS", "COMMAND")
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
		if out := fitted.String(); !strings.Contains(out, "a-cluster-with-a-name-to-type ") || !strings.Contains(out, "\x1b[32mUP\x1b[0m") || !strings.Contains(out, "…") || !strings.Contains(out, "sec") {
			t.Errorf("%d columns:\n%s", columns, out)
		}
	}
	if out := tab.Fit(80).String(); !strings.Contains(out, "2x(cpus=8, mem") {
		t.Errorf("80 columns:\n%s", out)
	}
	tab.Add(strings.Repeat("n", 300)) // a name nobody types
	if w := tab.Fit(80).Width(); w > 80 {
		t.Errorf("with a long name it takes %d columns:\n%s", w, tab.Fit(80))
	}
}
