package task

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAfter(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"one", "run: x", "[[]]"},
		{"a pipeline", "name: p\n---\nname: a\n---\nname: b\n---\nname: c", "[[] [0] [1]]"},
		{"all begin at once", "name: p\n---\nname: a\ndepends_on: []\n---\nname: b", "[[] []]"},
		{"a diamond, last first", "name: p\n---\nname: d\ndepends_on: [b, c, b]\n---\nname: b\ndepends_on: a\n---\nname: c\ndepends_on: [a]\n---\nname: a", "[[1 2] [3] [3] []]"},
		{"a group", "name: g\nexecution: parallel\n---\nname: a\n---\nname: b", "[[] []]"},
	} {
		d, err := Parse("f", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := fmt.Sprint(d.After()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestCirclesAreFound compares with taking away tasks that wait for none until
// no more can be.
func TestCirclesAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		after := make([][]int, rapid.IntRange(1, 8).Draw(t, "n"))
		for i := range after {
			after[i] = rapid.SliceOfDistinct(rapid.IntRange(0, len(after)-1), rapid.ID[int]).Draw(t, "after")
		}
		ring := circle(after)
		for i, k := range ring {
			if next := ring[(i+1)%len(ring)]; !slices.Contains(after[k], next) {
				t.Fatalf("%v: %d does not wait for %d", ring, k, next)
			}
		}
		done := map[int]bool{}
		for range after {
			for i, list := range after {
				if !slices.ContainsFunc(list, func(k int) bool { return !done[k] }) {
					done[i] = true
				}
			}
		}
		if (len(done) < len(after)) != (ring != nil) {
			t.Fatalf("circle %v, %d of %d can run", ring, len(done), len(after))
		}
	})
}
