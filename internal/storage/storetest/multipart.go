package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
)

func (h Harness) uploading(t *testing.T) storage.Bucket {
	t.Helper()
	b := h.made(t)
	if !b.Caps().Multipart {
		t.Skip("the store has no multipart uploads")
	}
	return b
}

func (h Harness) multipart(t *testing.T) {
	ctx, b := t.Context(), h.uploading(t)
	size := h.part(b)
	one, two, three := filled(size, 1), filled(size, 2), filled(1000, 3)
	put(t, b, "k", "before")
	o := storage.PutOptions{Metadata: map[string]string{"team": "vision"}}
	u, err := b.Start(ctx, "k", o)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	parts := make([]storage.Part, 3)
	for _, p := range []struct {
		n    int
		data []byte
	}{{3, three}, {1, two}, {2, two}, {1, one}} { // in any order; the last of each number counts
		if parts[p.n-1], err = b.PutPart(ctx, u, p.n, bytes.NewReader(p.data)); err != nil {
			t.Fatalf("part %d: %v", p.n, err)
		}
	}
	wantContent(t, b, "k", "before")
	wantKeys(t, b, storage.ListOptions{}, "k")
	if b.Caps().Uploads {
		h.wantUpload(t, b, u, true)
	}
	x, err := b.Complete(ctx, u, parts, o)
	if err != nil {
		t.Fatalf("Complete: %v", err)
	}
	want := slices.Concat(one, two, three)
	wantContent(t, b, "k", string(want))
	stat, err := b.Stat(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if stat.ETag != x.ETag || stat.Metadata["team"] != "vision" {
		t.Errorf("Stat says ETag %q and %v, Complete said %q", stat.ETag, stat.Metadata, x.ETag)
	}
	if b.Caps().Uploads {
		h.wantUpload(t, b, u, false)
	}
	got, _, err := get(t, b, "k", storage.GetOptions{Offset: size - 10, Length: 20})
	if err != nil || got != string(want[size-10:size+10]) {
		t.Errorf("a range across parts: %v", err)
	}
	// The answer to the first Complete may have been lost.
	_, err = b.Complete(ctx, u, parts, o)
	if err != nil {
		if e := wantError[*storage.NotFoundError](t, "Complete again", err); e != nil && e.Upload == "" {
			t.Errorf("Complete again: %v says nothing of the upload", err)
		}
	}
	wantContent(t, b, "k", string(want))
}

// wantUpload checks whether an upload is listed.
func (h Harness) wantUpload(t *testing.T, b storage.Bucket, u storage.Upload, want bool) {
	t.Helper()
	found := false
	o := storage.ListOptions{Prefix: u.Key}
	for {
		page, err := b.Uploads(t.Context(), o)
		if err != nil {
			t.Fatalf("Uploads: %v", err)
		}
		for _, x := range page.Uploads {
			found = found || x.ID == u.ID && x.Key == u.Key
		}
		if page.Next == o.Token {
			break
		}
		o.Token = page.Next
	}
	if found != want {
		t.Errorf("the upload is listed: %v, want %v", found, want)
	}
}

// resumed goes on with an upload in what could be another process.
func (h Harness) resumed(t *testing.T) {
	ctx, b := t.Context(), h.uploading(t)
	size := h.part(b)
	u, err := b.Start(ctx, "d/k", storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if parts, err := b.Parts(ctx, u); err != nil || len(parts) != 0 {
		t.Errorf("parts at the beginning: %v, %v", parts, err)
	}
	var want []byte
	for n := 1; n <= 2; n++ {
		data := filled(size, uint64(n))
		want = append(want, data...)
		if _, err := b.PutPart(ctx, u, n, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	other := h.New(t, b.Location().Bucket)
	parts, err := other.Parts(ctx, u)
	if err != nil || len(parts) != 2 {
		t.Fatalf("parts: %v, %v", parts, err)
	}
	for i, p := range parts {
		if p.Number != i+1 || p.Size != size || p.ETag == "" {
			t.Errorf("part %d is listed as %+v", i+1, p)
		}
	}
	want = append(want, "end"...)
	last, err := other.PutPart(ctx, u, 3, strings.NewReader("end"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Complete(ctx, u, append(parts, last), storage.PutOptions{}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	wantContent(t, b, "d/k", string(want))
}

func (h Harness) multipartConditions(t *testing.T) {
	ctx, b := t.Context(), h.uploading(t)
	if !b.Caps().ConditionalParts {
		for _, o := range []storage.PutOptions{{IfAbsent: true}, {IfMatch: "1"}} {
			_, err := b.Start(ctx, "k", o)
			wantError[*storage.UnsupportedError](t, "Start on a condition", err)
		}
		return
	}
	upload := func(content string, o storage.PutOptions) error {
		t.Helper()
		u, err := b.Start(ctx, "k", o)
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.PutPart(ctx, u, 1, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Complete(ctx, u, []storage.Part{p}, o)
		if err != nil {
			if err := b.Abort(ctx, u); err != nil {
				t.Errorf("Abort: %v", err)
			}
		}
		return err
	}
	if err := upload("one", storage.PutOptions{IfAbsent: true}); err != nil {
		t.Fatalf("IfAbsent on nothing: %v", err)
	}
	wantError[*storage.ConflictError](t, "IfAbsent on an object", upload("two", storage.PutOptions{IfAbsent: true}))
	o, err := b.Stat(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := upload("three", storage.PutOptions{IfMatch: o.ETag}); err != nil {
		t.Errorf("IfMatch on what is there: %v", err)
	}
	wantError[*storage.ConflictError](t, "IfMatch on what has changed", upload("four", storage.PutOptions{IfMatch: o.ETag}))
	wantContent(t, b, "k", "three")
}

func (h Harness) multipartEnds(t *testing.T) {
	ctx, b := t.Context(), h.uploading(t)
	u, err := b.Start(ctx, "k", storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	part, err := b.PutPart(ctx, u, 1, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := b.Abort(ctx, u); err != nil {
			t.Errorf("Abort %d: %v", i+1, err)
		}
	}
	wantKeys(t, b, storage.ListOptions{})
	ended := func(what string, err error) {
		t.Helper()
		if e := wantError[*storage.NotFoundError](t, what, err); e != nil && e.Upload != u.ID {
			t.Errorf("%s: %+v does not name the upload %q", what, e, u.ID)
		}
	}
	if b.Caps().UploadsFade {
		return
	}
	_, err = b.PutPart(ctx, u, 2, strings.NewReader("x"))
	ended("a part of an ended upload", err)
	_, err = b.Parts(ctx, u)
	ended("the parts of an ended upload", err)
	_, err = b.Complete(ctx, u, []storage.Part{part}, storage.PutOptions{})
	ended("completing an ended upload", err)
	wantKeys(t, b, storage.ListOptions{})
}

func (h Harness) copies(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	if !b.CopiesFrom(b) {
		t.Skip("the store copies nothing")
	}
	from := func(key, etag string) storage.Source {
		return storage.Source{Bucket: b, ID: storage.ID{Key: key}, ETag: etag}
	}
	o, err := b.Put(ctx, "a", strings.NewReader("content"), storage.PutOptions{Metadata: map[string]string{"team": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		o    storage.PutOptions
		team string
	}{{"kept", storage.PutOptions{}, "a"}, {"replaced", storage.PutOptions{Metadata: map[string]string{"team": "b"}}, "b"}, {"dropped", storage.PutOptions{Metadata: map[string]string{}}, ""}} {
		if _, err := b.Copy(ctx, c.key, from("a", o.ETag), c.o); err != nil {
			t.Errorf("%s: %v", c.key, err)
			continue
		}
		wantContent(t, b, c.key, "content")
		if x, err := b.Stat(ctx, c.key); err != nil || x.Metadata["team"] != c.team {
			t.Errorf("%s: metadata %v, %v, want team %q", c.key, x.Metadata, err, c.team)
		}
	}
	_, err = b.Copy(ctx, "new", from("missing", ""), storage.PutOptions{})
	wantError[*storage.NotFoundError](t, "copying nothing", err)
	put(t, b, "a", "changed")
	_, err = b.Copy(ctx, "new", from("a", o.ETag), storage.PutOptions{})
	wantError[*storage.ConflictError](t, "copying what has changed", err)
	wantKeys(t, b, storage.ListOptions{Prefix: "new"})
	other := h.made(t)
	if other.CopiesFrom(b) {
		if _, err := other.Copy(ctx, "x/y", from("a", ""), storage.PutOptions{}); err != nil {
			t.Errorf("copying to another bucket: %v", err)
		}
		wantContent(t, other, "x/y", "changed")
	}
}

func (h Harness) copyParts(t *testing.T) {
	ctx, b := t.Context(), h.uploading(t)
	if !b.Caps().CopyPart {
		t.Skip("the store copies no parts")
	}
	size := h.part(b)
	content := filled(2*size, 7)
	if _, err := b.Put(ctx, "from", bytes.NewReader(content), storage.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	o, err := b.Stat(ctx, "from")
	if err != nil {
		t.Fatal(err)
	}
	src := storage.Source{Bucket: b, ID: storage.ID{Key: "from"}, ETag: o.ETag}
	u, err := b.Start(ctx, "to", storage.PutOptions{Copied: true})
	if err != nil {
		t.Fatal(err)
	}
	one, err := b.CopyPart(ctx, u, 1, src, 100, size)
	if err != nil {
		t.Fatalf("CopyPart: %v", err)
	}
	two, err := b.PutPart(ctx, u, 2, strings.NewReader("appended"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Complete(ctx, u, []storage.Part{one, two}, storage.PutOptions{}); err != nil {
		t.Fatalf("Complete: %v", err)
	}
	wantContent(t, b, "to", string(content[100:100+size])+"appended")
	if u, err = b.Start(ctx, "to", storage.PutOptions{Copied: true}); err != nil {
		t.Fatal(err)
	}
	put(t, b, "from", "changed")
	_, err = b.CopyPart(ctx, u, 1, src, 0, 7)
	wantError[*storage.ConflictError](t, "a part of what has changed", err)
}

func (h Harness) versions(t *testing.T) {
	ctx, b := t.Context(), h.made(t)
	// Without versions, objects are listed.
	put(t, b, "plain", "x")
	page, err := b.Versions(ctx, storage.ListOptions{})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "plain" || page.Objects[0].DeleteMarker {
		t.Errorf("versions of a bucket without: %+v, %v", page, err)
	}
	if h.Versioned == nil {
		t.Skip("the server keeps no versions")
	}
	h.Versioned(t, b)
	var want []string
	for i := range 3 {
		put(t, b, "v/k", fmt.Sprint("content ", i))
		want = append(want, fmt.Sprint("content ", i))
	}
	if err := b.Remove(ctx, []storage.ID{{Key: "v/k"}}); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, b, storage.ListOptions{Prefix: "v/"})
	_, err = b.Stat(ctx, "v/k")
	wantError[*storage.NotFoundError](t, "Stat of what was deleted", err)
	_, _, err = get(t, b, "v/k", storage.GetOptions{})
	wantError[*storage.NotFoundError](t, "Get of what was deleted", err)
	wantError[*storage.BucketNotEmptyError](t, "deleting a bucket with versions", b.Delete(ctx))

	var got []string
	markers, current := 0, 0
	var ids []storage.ID
	o := storage.ListOptions{Prefix: "v/", Max: 2}
	for {
		page, err := b.Versions(ctx, o)
		if err != nil {
			t.Fatalf("Versions: %v", err)
		}
		for _, x := range page.Objects {
			ids = append(ids, storage.ID{Key: x.Key, Version: x.Version})
			if !x.Old {
				current++
			}
			if x.DeleteMarker {
				markers++
				continue
			}
			text, _, err := get(t, b, x.Key, storage.GetOptions{Version: x.Version})
			if err != nil {
				t.Errorf("version %s: %v", x.Version, err)
			}
			got = append(got, text)
		}
		if o.Token = page.Next; o.Token == "" || len(ids) > 100 {
			break
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || markers > 1 || current > 1 {
		t.Errorf("versions %q with %d delete markers and %d current, want %q", got, markers, current, want)
	}
	if err := b.Remove(ctx, ids); err != nil {
		t.Errorf("removing all versions: %v", err)
	}
	if page, err := b.Versions(ctx, storage.ListOptions{Prefix: "v/"}); err != nil || len(page.Objects) != 0 {
		t.Errorf("after that: %+v, %v", page, err)
	}
}
