// Package storetest is the contract of [storage.Bucket] as tests, which every
// driver passes against a server that behaves as its store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// A Harness is a driver with its server.
type Harness struct {
	// New is a bucket of that name, which does not exist yet. Called again with the
	// same name it is another Bucket for the same bucket.
	New func(t *testing.T, name string) storage.Bucket
	// Versioned makes the server keep versions in a bucket that exists; nil if it
	// cannot.
	Versioned func(t *testing.T, b storage.Bucket)
	// Cannot names what the server, not the store, cannot do, with the reason:
	// the subtest is skipped.
	Cannot map[string]string
	// Part is the size of parts; 0: the least that the store takes.
	Part int64
}

// Run tests the whole contract.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"Bucket", h.bucket}, {"Tags", h.tags}, {"Objects", h.objects}, {"Ranges", h.ranges}, {"Metadata", h.metadata},
		{"Keys", h.keys}, {"Pages", h.pages}, {"Levels", h.levels}, {"After", h.after}, {"Conditions", h.conditions}, {"Remove", h.remove},
		{"Multipart", h.multipart}, {"MultipartResumed", h.resumed}, {"MultipartConditions", h.multipartConditions}, {"MultipartEnds", h.multipartEnds},
		{"Copy", h.copies}, {"CopyParts", h.copyParts}, {"Versions", h.versions}, {"Cancel", h.cancel}, {"MissingBucket", h.missingBucket},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := h.Cannot[c.name]; why != "" {
				t.Skip(why)
			}
			c.test(t)
		})
	}
}

// name is one for a bucket that nobody has.
func name() string {
	return fmt.Sprintf("sky-test-%x", rand.Uint64())
}

// made is a bucket that exists, and is deleted with all that is in it.
func (h Harness) made(t *testing.T) storage.Bucket {
	t.Helper()
	b := h.New(t, name())
	if !b.Caps().Create {
		t.Skip("the store makes no buckets")
	}
	if err := b.Create(t.Context(), nil); err != nil {
		t.Fatalf("making a bucket: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := empty(ctx, b); err != nil {
			t.Errorf("emptying the bucket: %v", err)
		}
		if err := b.Delete(ctx); err != nil {
			t.Errorf("deleting the bucket: %v", err)
		}
	})
	return b
}

// empty deletes all that is in a bucket.
func empty(ctx context.Context, b storage.Bucket) error {
	if b.Caps().Uploads {
		for {
			page, err := b.Uploads(ctx, storage.ListOptions{})
			if err != nil {
				return err
			}
			for _, u := range page.Uploads {
				if err := b.Abort(ctx, u); err != nil {
					return err
				}
			}
			if len(page.Uploads) == 0 {
				break
			}
		}
	}
	for {
		page, err := b.Versions(ctx, storage.ListOptions{})
		if err != nil {
			return err
		}
		var ids []storage.ID
		for _, o := range page.Objects {
			ids = append(ids, storage.ID{Key: o.Key, Version: o.Version})
		}
		if len(ids) == 0 {
			return nil
		}
		for part := range slices.Chunk(ids, b.Caps().MaxRemove) {
			if err := b.Remove(ctx, part); err != nil {
				return err
			}
		}
	}
}

func put(t *testing.T, b storage.Bucket, key, content string) storage.Object {
	t.Helper()
	o, err := b.Put(t.Context(), key, strings.NewReader(content), storage.PutOptions{})
	if err != nil {
		t.Fatalf("putting %q: %v", key, err)
	}
	return o
}

func get(t *testing.T, b storage.Bucket, key string, o storage.GetOptions) (string, storage.Object, error) {
	t.Helper()
	r, err := b.Get(t.Context(), key, o)
	if err != nil {
		return "", storage.Object{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), r.Object, err
}

func wantContent(t *testing.T, b storage.Bucket, key, want string) {
	t.Helper()
	got, o, err := get(t, b, key, storage.GetOptions{})
	if err != nil {
		t.Errorf("getting %q: %v", key, err)
		return
	}
	if got != want {
		t.Errorf("%q holds %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(want), want)
	}
	if o.Size != int64(len(want)) || o.Key != key {
		t.Errorf("%q was described as %q with %d bytes, want %d", key, o.Key, o.Size, len(want))
	}
}

// wantError checks that err is, or wraps, an E.
func wantError[E error](t *testing.T, what string, err error) (e E) {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Errorf("%s: %T %v, want %T", what, err, err, e)
	}
	return e
}

// list reads all pages.
func list(t *testing.T, b storage.Bucket, o storage.ListOptions) (keys, prefixes []string) {
	t.Helper()
	for pages := 0; ; pages++ {
		page, err := b.List(t.Context(), o)
		if err != nil {
			t.Fatalf("listing: %v", err)
		}
		for _, x := range page.Objects {
			keys = append(keys, x.Key)
		}
		prefixes = append(prefixes, page.Prefixes...)
		if o.Token = page.Next; o.Token == "" || pages > 1000 {
			return keys, prefixes
		}
	}
}

func wantKeys(t *testing.T, b storage.Bucket, o storage.ListOptions, want ...string) {
	t.Helper()
	got, _ := list(t, b, o)
	if !b.Caps().Ordered {
		slices.Sort(got)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the list with prefix %q has %q, want %q", o.Prefix, got, want)
	}
}

// filled is content of some size that repeats nowhere.
func filled(size int64, seed uint64) []byte {
	data := make([]byte, size)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rand.NewChaCha8(key).Read(data)
	return data
}

func (h Harness) part(b storage.Bucket) int64 {
	if h.Part > 0 {
		return h.Part
	}
	return max(b.Caps().MinPart, 1<<10)
}

func (h Harness) bucket(t *testing.T) {
	ctx, b := t.Context(), h.New(t, name())
	_, err := b.Head(ctx)
	wantError[*storage.NotFoundError](t, "Head of a missing bucket", err)
	if err := b.Delete(ctx); err != nil {
		t.Errorf("deleting a missing bucket: %v", err)
	}
	if !b.Caps().Create {
		wantError[*storage.UnsupportedError](t, "Create", b.Create(ctx, nil))
		return
	}
	for i := range 2 {
		if err := b.Create(ctx, nil); err != nil {
			t.Fatalf("creation %d: %v", i+1, err)
		}
	}
	info, err := b.Head(ctx)
	if err != nil {
		t.Fatalf("Head: %v", err)
	}
	if want := b.Location().Region; want != "" && info.Region != "" && !strings.EqualFold(info.Region, want) {
		t.Errorf("the region is %q, want %q", info.Region, want)
	}
	if b.Location().Key != "" {
		t.Errorf("the location of a bucket has the key %q", b.Location().Key)
	}
	put(t, b, "in/the/way", "x")
	wantError[*storage.BucketNotEmptyError](t, "deleting a bucket with an object", b.Delete(ctx))
	if err := b.Remove(ctx, []storage.ID{{Key: "in/the/way"}}); err != nil {
		t.Errorf("Remove: %v", err)
	}
	for i := range 2 {
		if err := b.Delete(ctx); err != nil {
			t.Errorf("deletion %d: %v", i+1, err)
		}
	}
	_, err = b.Head(ctx)
	wantError[*storage.NotFoundError](t, "Head of a deleted bucket", err)
}

func (h Harness) tags(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	if !b.Caps().Tags {
		_, err := b.Tags(ctx)
		wantError[*storage.UnsupportedError](t, "Tags", err)
		wantError[*storage.UnsupportedError](t, "SetTags", b.SetTags(ctx, map[string]string{"a": "b"}))
		return
	}
	want := func(what string, want map[string]string) {
		t.Helper()
		got, err := b.Tags(ctx)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: tags %v, %v, want %v", what, got, err, want)
		}
	}
	want("none", map[string]string{})
	for _, tags := range []map[string]string{{storage.MarkerTag: "0a1b2c", "team": "vision"}, {"other": "1"}} {
		if err := b.SetTags(ctx, tags); err != nil {
			t.Fatalf("SetTags: %v", err)
		}
		want("set", tags)
	}
	// The tags of a bucket that is there stay.
	if err := b.Create(ctx, map[string]string{storage.MarkerTag: "ffff"}); err != nil {
		t.Errorf("creating it again: %v", err)
	}
	want("created again", map[string]string{"other": "1"})
	if err := b.SetTags(ctx, nil); err != nil {
		t.Errorf("removing tags: %v", err)
	}
	want("removed", map[string]string{})
	if err := b.Create(ctx, map[string]string{storage.MarkerTag: "ffff"}); err != nil {
		t.Errorf("creating it again: %v", err)
	}
	want("created again without tags", map[string]string{storage.MarkerTag: "ffff"})
}

func (h Harness) objects(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	_, err := b.Stat(ctx, "nothing")
	wantError[*storage.NotFoundError](t, "Stat", err)
	_, _, err = get(t, b, "nothing", storage.GetOptions{})
	wantError[*storage.NotFoundError](t, "Get", err)
	wantKeys(t, b, storage.ListOptions{})

	for _, size := range []int64{0, 1, 1000, 70_000} {
		key := fmt.Sprint("size/", size)
		content := string(filled(size, uint64(size)))
		made := put(t, b, key, content)
		wantContent(t, b, key, content)
		o, err := b.Stat(ctx, key)
		if err != nil {
			t.Fatalf("Stat: %v", err)
		}
		if o.Key != key || o.Size != size || o.ETag == "" || o.ETag != made.ETag || strings.Contains(o.ETag, `"`) {
			t.Errorf("Stat says %q, %d bytes, ETag %q; Put said ETag %q", o.Key, o.Size, o.ETag, made.ETag)
		}
		if since := time.Since(o.Modified); since < -24*time.Hour || since > 24*time.Hour {
			t.Errorf("%q was modified at %v", key, o.Modified)
		}
		page, err := b.List(ctx, storage.ListOptions{Prefix: key})
		if err != nil || len(page.Objects) == 0 {
			t.Fatalf("List: %v, %v", page, err)
		}
		if x := page.Objects[0]; x.Key != key || x.Size != size || x.ETag != o.ETag || x.Modified.IsZero() {
			t.Errorf("List says %+v, Stat said %+v", x, o)
		}
	}
	first := put(t, b, "twice", "one")
	second := put(t, b, "twice", "two, and longer")
	wantContent(t, b, "twice", "two, and longer")
	if first.ETag == second.ETag {
		t.Errorf("other content has the same ETag %q", first.ETag)
	}
	// The whole body counts, wherever it was read to.
	body := strings.NewReader("from the start")
	body.Seek(5, io.SeekStart)
	if _, err := b.Put(ctx, "moved", body, storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	wantContent(t, b, "moved", "from the start")
	_, err = b.Put(ctx, "", strings.NewReader("x"), storage.PutOptions{})
	wantError[*storage.InvalidError](t, "Put without a key", err)
	_, err = b.Put(ctx, strings.Repeat("k", b.Caps().MaxKey+1), strings.NewReader("x"), storage.PutOptions{})
	wantError[*storage.InvalidError](t, "Put with a key that is too long", err)
}

func (h Harness) ranges(t *testing.T) {
	b := h.made(t)
	content := string(filled(1000, 1))
	o := put(t, b, "k", content)
	for _, c := range []struct{ offset, length, from, to int64 }{
		{0, 0, 0, 1000}, {0, 1, 0, 1}, {0, 1000, 0, 1000}, {999, 1, 999, 1000}, {10, 20, 10, 30}, {500, 0, 500, 1000}, {990, 100, 990, 1000},
	} {
		got, x, err := get(t, b, "k", storage.GetOptions{Offset: c.offset, Length: c.length})
		if err != nil || got != content[c.from:c.to] || x.Size != 1000 || x.ETag != o.ETag {
			t.Errorf("range %d+%d: %d bytes of %d, ETag %q, %v", c.offset, c.length, len(got), x.Size, x.ETag, err)
		}
	}
	for _, offset := range []int64{1000, 5000} {
		_, _, err := get(t, b, "k", storage.GetOptions{Offset: offset, Length: 10})
		wantError[*storage.InvalidError](t, fmt.Sprint("range at ", offset), err)
	}
	if got, _, err := get(t, b, "k", storage.GetOptions{IfMatch: o.ETag, Offset: 1, Length: 1}); err != nil || got != content[1:2] {
		t.Errorf("Get of the same content: %v", err)
	}
	put(t, b, "k", "other")
	_, _, err := get(t, b, "k", storage.GetOptions{IfMatch: o.ETag, Offset: 1, Length: 1})
	wantError[*storage.ConflictError](t, "Get of changed content", err)
	_, _, err = get(t, b, "no", storage.GetOptions{IfMatch: o.ETag})
	wantError[*storage.NotFoundError](t, "Get of a missing object with a condition", err)
}

func (h Harness) metadata(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	if !b.Caps().Metadata {
		t.Skip("the store keeps none")
	}
	a := storage.Attributes{ModTime: time.Unix(1_700_000_000, 123_456_789), Mode: 0o750, Link: "../ü & \n\"%", Hash: "0123abcd"}
	m := a.Metadata(map[string]string{"team": "a b=c"})
	o, err := b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{Metadata: m, ContentType: "text/plain"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, got map[string]string) {
		t.Helper()
		for k, v := range m {
			if got[k] != v {
				t.Errorf("%s: %s is %q, want %q", what, k, got[k], v)
			}
		}
		if back := storage.AttributesOf(got); !back.ModTime.Equal(a.ModTime) || back.Mode != a.Mode || back.Link != a.Link || back.Hash != a.Hash {
			t.Errorf("%s: %+v, want %+v", what, back, a)
		}
	}
	check("Put", o.Metadata)
	o, err = b.Stat(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	check("Stat", o.Metadata)
	_, o, err = get(t, b, "k", storage.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check("Get", o.Metadata)
	if b.Caps().ListsMetadata {
		page, err := b.List(ctx, storage.ListOptions{})
		if err != nil || len(page.Objects) != 1 {
			t.Fatalf("List: %v %v", page, err)
		}
		check("List", page.Objects[0].Metadata)
	}
	put(t, b, "k", "x")
	if o, err = b.Stat(ctx, "k"); err != nil || len(o.Metadata) != 0 || o.Metadata == nil {
		t.Errorf("after a Put without: metadata %v, %v; want an empty map", o.Metadata, err)
	}
}

// oddKeys are keys that something on the way may change.
var oddKeys = []string{
	"plain", "a/b", "a/b/c.txt", "with space", "plus+plus", "per%20cent", "per%cent", "a&b=c", "q?x=1#y", "ünï/文字", "semi;colon", "quote\"'", "<xml>&amp;", "~.-_", "a:b", "star*", "back\\slash",
	"..", "../up", "a/../b", "./a", "a/./b", "/abs", "a//b", "dir/", "a/b/", " lead", "trail ", "tab\tx", "line\nx", "cr\rx", "\x01ctl", "\x7f", "\u2028", "\ufffd", strings.Repeat("l", 200),
}

// keys checks that a key is stored as it is, or refused and nothing else changed.
func (h Harness) keys(t *testing.T) {
	for _, key := range oddKeys {
		t.Run(fmt.Sprintf("%.20q", key), func(t *testing.T) {
			if why := h.Cannot["Keys/"+key]; why != "" {
				t.Skip(why)
			}
			ctx, b := t.Context(), h.made(t)
			_, err := b.Put(ctx, key, strings.NewReader("content of "+key), storage.PutOptions{})
			if err != nil {
				// Names that a server on a file system has trouble with may be refused;
				// such a failure is told apart from one of the connection.
				if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz") == "" {
					t.Fatalf("putting %q: %v", key, err)
				}
				if storage.Temporary(err) {
					t.Logf("refused as if it were temporary: %v", err)
				}
				wantKeys(t, b, storage.ListOptions{})
				t.Skipf("the server refuses the key: %v", err)
			}
			wantKeys(t, b, storage.ListOptions{}, key)
			wantKeys(t, b, storage.ListOptions{Prefix: key}, key)
			wantContent(t, b, key, "content of "+key)
			if o, err := b.Stat(ctx, key); err != nil || o.Key != key {
				t.Errorf("Stat: %q, %v", o.Key, err)
			}
			if b.CopiesFrom(b) {
				if _, err := b.Copy(ctx, "copy", storage.Source{Bucket: b, ID: storage.ID{Key: key}}, storage.PutOptions{}); err != nil {
					t.Errorf("copying %q: %v", key, err)
				} else {
					wantContent(t, b, "copy", "content of "+key)
				}
			}
			put(t, b, "other", "x")
			if err := b.Remove(ctx, []storage.ID{{Key: key}, {Key: "copy"}}); err != nil {
				t.Errorf("removing %q: %v", key, err)
			}
			wantKeys(t, b, storage.ListOptions{}, "other")
		})
	}
}

func (h Harness) pages(t *testing.T) {
	b := h.made(t)
	var want []string
	for i := range 25 {
		key := fmt.Sprintf("p/%02d", i)
		put(t, b, key, key)
		want = append(want, key)
	}
	put(t, b, "q", "")
	var got []string
	o := storage.ListOptions{Prefix: "p/", Max: 4}
	for range 100 {
		// Another process goes on with the token.
		page, err := h.New(t, b.Location().Bucket).List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Objects) > 4 {
			t.Errorf("a page of at most 4 has %d", len(page.Objects))
		}
		for _, x := range page.Objects {
			got = append(got, x.Key)
		}
		if o.Token = page.Next; o.Token == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages gave %q, want %q", got, want)
	}
	wantKeys(t, b, storage.ListOptions{Prefix: "p/1"}, want[10:20]...)
	wantKeys(t, b, storage.ListOptions{Prefix: "none"})
}

func (h Harness) levels(t *testing.T) {
	b := h.made(t)
	for _, key := range []string{"a", "d/a", "d/b", "d/e/a", "f/g/h", "z"} {
		put(t, b, key, key)
	}
	for _, c := range []struct {
		prefix         string
		keys, prefixes []string
	}{
		{"", []string{"a", "z"}, []string{"d/", "f/"}},
		{"d/", []string{"d/a", "d/b"}, []string{"d/e/"}},
		{"d", nil, []string{"d/"}},
		{"f/", nil, []string{"f/g/"}},
		{"x/", nil, nil},
	} {
		for _, max := range []int{0, 1} {
			keys, prefixes := list(t, b, storage.ListOptions{Prefix: c.prefix, Delimiter: "/", Max: max})
			slices.Sort(keys)
			slices.Sort(prefixes)
			if !slices.Equal(keys, c.keys) || !slices.Equal(prefixes, c.prefixes) {
				t.Errorf("level %q, pages of %d: %q and %q, want %q and %q", c.prefix, max, keys, prefixes, c.keys, c.prefixes)
			}
		}
	}
}

// after lists a level in two parts, at keys between and beside all that is in it.
func (h Harness) after(t *testing.T) {
	b := h.made(t)
	if !b.Caps().After {
		t.Skip("the store does not list what follows a key")
	}
	for _, key := range []string{"a", "l/b-1", "l/b.1", "l/b/x", "l/b/y", "l/b0", "l/c", "l/d/x", "l/d0", "l/e", "z"} {
		put(t, b, key, key)
	}
	o := storage.ListOptions{Prefix: "l/", Delimiter: "/"}
	all, folders := list(t, b, o)
	for _, split := range []string{"l/a", "l/b", "l/b-", "l/b-1", "l/b-5", "l/b.", "l/b0", "l/b00", "l/bb", "l/c", "l/cc", "l/d", "l/d-", "l/d0", "l/d5", "l/e", "l/f"} {
		var keys []string
		below := map[string]bool{}
		for _, key := range all {
			if key <= split {
				keys = append(keys, key)
			}
		}
		for _, f := range folders {
			if f < split {
				below[f] = true
			}
		}
		o := o
		o.After = split
		behind, more := list(t, b, o)
		for _, f := range more {
			below[f] = true
		}
		if keys = append(keys, behind...); !slices.Equal(keys, all) {
			t.Errorf("up to %q and behind it are %q, in all %q", split, keys, all)
		}
		if len(below) != len(folders) {
			t.Errorf("folders up to %q and behind it are %v, in all %q", split, below, folders)
		}
	}
}

func (h Harness) conditions(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	write := func(content string, o storage.PutOptions) (storage.Object, error) {
		return b.Put(ctx, "k", strings.NewReader(content), o)
	}
	if !b.Caps().Conditional {
		_, err := write("x", storage.PutOptions{IfAbsent: true})
		wantError[*storage.UnsupportedError](t, "IfAbsent", err)
		return
	}
	_, err := write("x", storage.PutOptions{IfMatch: "00000000000000000000000000000000"})
	wantError[*storage.ConflictError](t, "IfMatch on nothing", err)
	first, err := write("one", storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatalf("IfAbsent on nothing: %v", err)
	}
	_, err = write("two", storage.PutOptions{IfAbsent: true})
	wantError[*storage.ConflictError](t, "IfAbsent on an object", err)
	wantContent(t, b, "k", "one")
	if _, err = write("three", storage.PutOptions{IfMatch: first.ETag}); err != nil {
		t.Fatalf("IfMatch on what is there: %v", err)
	}
	_, err = write("four", storage.PutOptions{IfMatch: first.ETag})
	wantError[*storage.ConflictError](t, "IfMatch on what has changed", err)
	wantContent(t, b, "k", "three")
}

func (h Harness) remove(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	if err := b.Remove(ctx, nil); err != nil {
		t.Errorf("removing nothing: %v", err)
	}
	var ids []storage.ID
	for i := range 40 {
		key := fmt.Sprintf("k/%d", i)
		put(t, b, key, "")
		ids = append(ids, storage.ID{Key: key})
	}
	ids = append(ids, storage.ID{Key: "never/was"})
	put(t, b, "stays", "x")
	if err := b.Remove(ctx, ids); err != nil {
		t.Errorf("Remove: %v", err)
	}
	wantKeys(t, b, storage.ListOptions{}, "stays")
	for range 2 {
		if err := b.Remove(ctx, []storage.ID{{Key: "stays"}}); err != nil {
			t.Errorf("Remove of one: %v", err)
		}
	}
	wantKeys(t, b, storage.ListOptions{})
	wantError[*storage.InvalidError](t, "removing too many", b.Remove(ctx, make([]storage.ID, b.Caps().MaxRemove+1)))
}

func (h Harness) cancel(t *testing.T) {
	b := h.made(t)
	content := filled(4<<20, 3)
	if _, err := b.Put(t.Context(), "k", bytes.NewReader(content), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := b.Get(ctx, "k", storage.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, why) {
		t.Errorf("reading on after the end of the context: %v, want its cause", err)
	}
	r.Close()
	if _, err := b.Stat(ctx, "k"); !errors.Is(err, why) {
		t.Errorf("Stat after the end of the context: %v, want its cause", err)
	}
	r, err = b.Get(t.Context(), "k", storage.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(r, make([]byte, 10))
	if err := r.Close(); err != nil {
		t.Errorf("closing before the end: %v", err)
	}
}

func (h Harness) missingBucket(t *testing.T) {
	ctx, b := t.Context(), h.New(t, name())
	_, err := b.List(ctx, storage.ListOptions{})
	wantError[*storage.NotFoundError](t, "List", err)
	_, err = b.Stat(ctx, "k")
	wantError[*storage.NotFoundError](t, "Stat", err)
	_, err = b.Get(ctx, "k", storage.GetOptions{})
	wantError[*storage.NotFoundError](t, "Get", err)
	if b.Caps().ReadOnly {
		return
	}
	_, err = b.Put(ctx, "k", strings.NewReader("x"), storage.PutOptions{})
	if e := wantError[*storage.NotFoundError](t, "Put", err); e != nil && e.Key != "" {
		t.Errorf("Put into a missing bucket says that the object is missing")
	}
	if b.Caps().Multipart {
		_, err = b.Start(ctx, "k", storage.PutOptions{})
		wantError[*storage.NotFoundError](t, "Start", err)
	}
}
