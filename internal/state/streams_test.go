package state

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

func TestStreams(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		st := s.Streams()
		same(t, "no stream", must(st.Size(ctx, "a"))(t), int64(0))
		ok(t, st.Append(ctx, "a", Piece{0, []byte("one\n")}))
		ok(t, st.Append(ctx, "a", Piece{4, []byte("\x00\xfftwo")}))
		is(t, st.Append(ctx, "a", Piece{4, []byte("late")}), ErrConflict)
		ok(t, st.Append(ctx, "b", Piece{0, bytes.Repeat([]byte("x"), MaxPiece)}))
		for _, wrong := range [][]byte{nil, bytes.Repeat([]byte("x"), MaxPiece+1)} {
			if st.Append(ctx, "a", Piece{9, wrong}) == nil {
				t.Errorf("a piece of %d bytes was taken", len(wrong))
			}
		}
		same(t, "size", must(st.Size(ctx, "a"))(t), int64(9))
		one, two := Piece{0, []byte("one\n")}, Piece{4, []byte("\x00\xfftwo")}
		for from, want := range [][]Piece{{one, two}, {one, two}, {one, two}, {one, two}, {two}, {two}, {two}, {two}, {two}, nil, nil} {
			same(t, fmt.Sprint("from ", from), must(st.Read(ctx, "a", int64(from), 10))(t), want)
		}
		same(t, "limited", must(st.Read(ctx, "a", 0, 1))(t), []Piece{one})
		ok(t, st.Delete(ctx, []string{"a", "none"}))
		ok(t, st.Delete(ctx, nil))
		same(t, "deleted", must(st.Size(ctx, "a"))(t), int64(0))
		same(t, "the other stays", must(st.Size(ctx, "b"))(t), int64(MaxPiece))
	})
}

func TestBlobs(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		bs := s.Blobs()
		b := Blob{Name: "new/1", Stream: "s1", UserID: "u", Size: 3}
		ok(t, bs.Begin(ctx, b))
		is(t, bs.Begin(ctx, b), ErrConflict)
		ok(t, s.Streams().Append(ctx, "s1", Piece{0, []byte("abc")}))
		_, err := bs.Use(ctx, "new/1")
		is(t, err, ErrNotFound) // not whole
		ok(t, bs.Finish(ctx, "new/1", "up/u/x", 3))
		is(t, bs.Finish(ctx, "new/1", "up/u/x", 3), ErrConflict)
		got := must(bs.Use(ctx, "up/u/x"))(t)
		same(t, "whole", []any{got.Stream, got.Size, got.Whole, got.UserID}, []any{"s1", int64(3), true, "u"})
		ok(t, bs.Begin(ctx, Blob{Name: "new/2", Stream: "s2", UserID: "u", Size: 4}))
		is(t, bs.Finish(ctx, "new/2", "up/u/x", 4), ErrConflict) // the name is taken
		same(t, "all of a user count", must(bs.UsedBy(ctx, "u"))(t), int64(7))
		same(t, "another's", must(bs.UsedBy(ctx, "v"))(t), int64(0))
		list := must(bs.List(ctx, "up/"))(t)
		if len(list) != 1 || list[0].Name != "up/u/x" {
			t.Fatalf("%+v", list)
		}
		old := list[0]
		old.UsedAt = old.UsedAt.Add(-time.Second)
		ok(t, bs.Delete(ctx, old)) // used since
		must(bs.Use(ctx, "up/u/x"))(t)
		ok(t, bs.Delete(ctx, must(bs.List(ctx, "up/"))(t)[0]))
		_, err = bs.Use(ctx, "up/u/x")
		is(t, err, ErrNotFound)
		same(t, "its bytes are gone", must(s.Streams().Size(ctx, "s1"))(t), int64(0))
	})
}
