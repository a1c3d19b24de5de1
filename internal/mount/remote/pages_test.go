//go:build linux

package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
)

// counted counts lists, and answers lists of what follows a key in its own way.
type counted struct {
	storage.Bucket
	lists atomic.Int32
	after func(storage.ListOptions) (storage.ListOptions, error)
	page  func(storage.Page) storage.Page
}

func (c *counted) List(ctx context.Context, o storage.ListOptions) (storage.Page, error) {
	c.lists.Add(1)
	if o.After != "" && c.after != nil {
		var err error
		if o, err = c.after(o); err != nil {
			return storage.Page{}, err
		}
	}
	p, err := c.Bucket.List(ctx, o)
	if c.page != nil {
		p = c.page(p)
	}
	return p, err
}

func (c *counted) Caps() storage.Caps {
	caps := c.Bucket.Caps()
	caps.After = true
	return caps
}

// numbered are names that programs give.
var numbered = map[string]func(i int) string{
	"digits":        func(i int) string { return fmt.Sprintf("file-%05d", i) },
	"with an end":   func(i int) string { return fmt.Sprintf("img_%06d.jpg", i) },
	"not padded":    func(i int) string { return fmt.Sprintf("img_%d.jpg", i) },
	"hexadecimal":   func(i int) string { return fmt.Sprintf("%04x", i) },
	"random":        func(i int) string { return fmt.Sprintf("%016x", rand.New(rand.NewPCG(1, uint64(i))).Uint64()) },
	"two groups":    func(i int) string { return fmt.Sprintf("%c-%05d", "az"[i%2], i) },
	"beyond ASCII":  func(i int) string { return fmt.Sprintf("ü%c%05d", 'ä'+rune(i%3), i) },
	"few and many":  func(i int) string { return strings.Repeat("9", i%7) + fmt.Sprint(i) },
	"with a folder": func(i int) string { return fmt.Sprintf("file-%05d%s", i, []string{"", "/x"}[min(1, i/3500)]) },
}

func TestListsAreWhole(t *testing.T) {
	const many = 5200
	for name, of := range numbered {
		b := (&memory.Store{}).Bucket("b")
		if err := b.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for i := range many {
			want[strings.TrimSuffix(of(i), "/x")] = true
			if _, err := b.Put(t.Context(), "d/"+of(i), strings.NewReader("x"), storage.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for behaviour, x := range map[string]*counted{
			"":                       {},
			"refuses":                {after: func(o storage.ListOptions) (storage.ListOptions, error) { return o, errors.New("not implemented") }},
			"ignores":                {after: func(o storage.ListOptions) (storage.ListOptions, error) { o.After = ""; return o, nil }},
			"has another order":      {page: func(p storage.Page) storage.Page { slices.Reverse(p.Objects); return p }},
			"has another order then": {after: func(o storage.ListOptions) (storage.ListOptions, error) { o.After = "d/"; return o, nil }},
		} {
			t.Run(name+" "+behaviour, func(t *testing.T) {
				x.Bucket = b
				got := map[string]bool{}
				for e, err := range New(x, Options{}).List(t.Context(), "d") {
					if err != nil {
						t.Fatal(err)
					}
					if got[e.Path] {
						t.Fatalf("%q is listed twice", e.Path)
					}
					got[e.Path] = true
				}
				for name := range want {
					if !got["d/"+name] {
						t.Fatalf("%q is not listed", name)
					}
				}
				if len(got) != len(want) {
					t.Errorf("%d names, want %d", len(got), len(want))
				}
				pages := (len(want) + 999) / 1000
				if n := int(x.lists.Load()); n > 2*pages+3 {
					t.Errorf("%d requests for %d pages", n, pages)
				}
			})
		}
	}
}

// Of names with numbers, each request but the last ones is a page of its own.
func TestPagesAreGuessed(t *testing.T) {
	for _, name := range []string{"digits", "with an end", "hexadecimal", "random"} {
		var names []string
		for i := range 20_000 {
			names = append(names, numbered[name](i))
		}
		slices.Sort(names)
		var p storage.Page
		for _, n := range names[:1000] {
			p.Objects = append(p.Objects, storage.Object{Key: "d/" + n})
		}
		splits := guess("d/", p, 3)
		if len(splits) != 3 {
			t.Errorf("%s: %q", name, splits)
			continue
		}
		from := 1000
		for _, s := range splits {
			i, _ := slices.BinarySearch(names, strings.TrimPrefix(s, "d/"))
			if n := i - from; n < 700 || n > 1000 {
				t.Errorf("%s: %d names up to %q", name, n, s)
			}
			from = i
		}
	}
	for name, p := range map[string]storage.Page{"few": {Objects: make([]storage.Object, 3)}, "none": {}} {
		if s := guess("", p, 3); s != nil {
			t.Errorf("%s: %q", name, s)
		}
	}
}

// A reader who stops early, and one whose context ends, leave nothing behind.
func TestListsEndEarly(t *testing.T) {
	b := (&memory.Store{}).Bucket("b")
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if _, err := b.Put(t.Context(), fmt.Sprintf("%05d", i), strings.NewReader(""), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tree := New(b, Options{})
	n := 0
	for _, err := range tree.List(t.Context(), "") {
		if n++; err != nil || n == 1500 {
			break
		}
	}
	if _, known := tree.cache.listing(""); known || n != 1500 {
		t.Errorf("%d entries; a part of a list is remembered: %v", n, known)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range tree.List(ctx, "") {
		cancel()
		last = err
	}
	if _, known := tree.cache.listing(""); last == nil && !known {
		t.Error("a list that was cancelled ends as if it were whole")
	}
}
