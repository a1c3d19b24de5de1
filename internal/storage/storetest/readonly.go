package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
)

// RunReadOnly tests what a store that is only read must do. fill makes a bucket with these
// objects, and missing one that does not exist.
func RunReadOnly(t *testing.T, fill func(t *testing.T, objects map[string]string) storage.Bucket, missing func(t *testing.T) storage.Bucket) {
	content := map[string]string{
		"a": "first", "d/a": "second", "d/b": "", "d/e/a": "third", "f/g/h": "fourth", "odd +&?#%/ü x": "odd", "large": string(filled(70_000, 1)), "z": "last",
	}
	b := fill(t, content)
	ctx := t.Context()

	t.Run("Head", func(t *testing.T) {
		if _, err := b.Head(ctx); err != nil {
			t.Error(err)
		}
		if !b.Caps().ReadOnly {
			t.Error("it does not say that it is only read")
		}
	})
	t.Run("Lists", func(t *testing.T) {
		for _, c := range []struct {
			o              storage.ListOptions
			keys, prefixes string
		}{
			{storage.ListOptions{}, "a d/a d/b d/e/a f/g/h large odd +&?#%/ü x z", ""},
			{storage.ListOptions{Max: 2}, "a d/a d/b d/e/a f/g/h large odd +&?#%/ü x z", ""},
			{storage.ListOptions{Prefix: "d/"}, "d/a d/b d/e/a", ""},
			{storage.ListOptions{Prefix: "d/e"}, "d/e/a", ""},
			{storage.ListOptions{Prefix: "l"}, "large", ""},
			{storage.ListOptions{Prefix: "none/"}, "", ""},
			{storage.ListOptions{Delimiter: "/"}, "a large z", "d/ f/ odd +&?#%/"},
			{storage.ListOptions{Delimiter: "/", Prefix: "d/", Max: 1}, "d/a d/b", "d/e/"},
			{storage.ListOptions{Delimiter: "/", Prefix: "f/"}, "", "f/g/"},
		} {
			keys, prefixes := list(t, b, c.o)
			slices.Sort(keys)
			slices.Sort(prefixes)
			if got := strings.Join(keys, " "); got != c.keys {
				t.Errorf("%+v: keys %q, want %q", c.o, got, c.keys)
			}
			if got := strings.Join(prefixes, " "); got != c.prefixes {
				t.Errorf("%+v: prefixes %q, want %q", c.o, got, c.prefixes)
			}
		}
	})
	t.Run("Objects", func(t *testing.T) {
		page, err := b.List(ctx, storage.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]storage.Object{}
		for _, o := range page.Objects {
			listed[o.Key] = o
		}
		for key, text := range content {
			wantContent(t, b, key, text)
			o, err := b.Stat(ctx, key)
			if err != nil || o.Key != key || o.Size != int64(len(text)) || o.ETag == "" || o.Metadata == nil {
				t.Errorf("%q: %+v, %v", key, o, err)
			}
			if l := listed[key]; l.Size != o.Size || l.ETag != o.ETag || l.Digest != o.Digest {
				t.Errorf("%q: the list says %+v, Stat %+v", key, l, o)
			}
			if got, x, err := get(t, b, key, storage.GetOptions{IfMatch: o.ETag}); err != nil || got != text || x.ETag != o.ETag {
				t.Errorf("%q with its ETag: %d bytes, %+v, %v", key, len(got), x, err)
			}
		}
	})
	t.Run("Ranges", func(t *testing.T) {
		text := content["large"]
		for _, c := range []struct{ offset, length, from, to int }{{0, 1, 0, 1}, {69_999, 0, 69_999, 70_000}, {100, 1000, 100, 1100}, {69_990, 100, 69_990, 70_000}} {
			got, o, err := get(t, b, "large", storage.GetOptions{Offset: int64(c.offset), Length: int64(c.length)})
			if err != nil || got != text[c.from:c.to] || o.Size != 70_000 {
				t.Errorf("%+v: %d bytes, %+v, %v", c, len(got), o, err)
			}
		}
		_, _, err := get(t, b, "large", storage.GetOptions{Offset: 70_000, Length: 1})
		wantError[*storage.InvalidError](t, "a range beyond the end", err)
		_, _, err = get(t, b, "large", storage.GetOptions{IfMatch: "other", Length: 1})
		wantError[*storage.ConflictError](t, "other content", err)
	})
	t.Run("Missing", func(t *testing.T) {
		_, err := b.Stat(ctx, "nothing")
		wantError[*storage.NotFoundError](t, "Stat", err)
		_, _, err = get(t, b, "nothing", storage.GetOptions{})
		wantError[*storage.NotFoundError](t, "Get", err)
		_, err = b.Stat(ctx, "d")
		wantError[*storage.NotFoundError](t, "Stat of a folder", err)
		m := missing(t)
		for what, err := range map[string]error{
			"Head": second(m.Head(ctx)), "List": second(m.List(ctx, storage.ListOptions{})), "Stat": second(m.Stat(ctx, "k")), "Get": second(m.Get(ctx, "k", storage.GetOptions{})),
		} {
			if e := wantError[*storage.NotFoundError](t, what, err); e != nil && e.Key != "" {
				t.Errorf("%s says that an object is missing, not the bucket: %v", what, err)
			}
		}
	})
	t.Run("Writes", func(t *testing.T) {
		u := storage.Upload{Key: "k", ID: "1"}
		for i, err := range []error{
			b.Create(ctx, nil), b.Delete(ctx), second(b.Tags(ctx)), b.SetTags(ctx, nil), second(b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{})),
			second(b.Copy(ctx, "k", storage.Source{Bucket: b, ID: storage.ID{Key: "a"}}, storage.PutOptions{})), b.Remove(ctx, []storage.ID{{Key: "a"}}),
			second(b.Start(ctx, "k", storage.PutOptions{})), second(b.PutPart(ctx, u, 1, strings.NewReader("x"))), second(b.CopyPart(ctx, u, 1, storage.Source{Bucket: b}, 0, 1)),
			second(b.Parts(ctx, u)), second(b.Complete(ctx, u, nil, storage.PutOptions{})), b.Abort(ctx, u), second(b.Uploads(ctx, storage.ListOptions{})),
		} {
			wantError[*storage.UnsupportedError](t, fmt.Sprint("write ", i), err)
		}
		if b.CopiesFrom(b) {
			t.Error("it copies")
		}
	})
}

func second[T any](_ T, err error) error { return err }
