package state

import (
	"context"
	"errors"
)

// Streams is the store of bytes that are only added to, such as logs. A stream
// exists once it has a piece.
type Streams struct{ s *Store }

// Streams is the store of byte streams.
func (s *Store) Streams() *Streams { return &Streams{s} }

// MaxPiece is how many bytes one piece of a stream may have.
const MaxPiece = 1 << 20

// Piece is a part of a stream.
type Piece struct {
	At   int64 // where it begins
	Data []byte
}

// Append adds a piece at the end of a stream, which must be at; [ErrConflict]
// if somebody else added one there.
func (t *Streams) Append(ctx context.Context, stream string, p Piece) error {
	if len(p.Data) == 0 || len(p.Data) > MaxPiece {
		return errors.New("state: a piece of a stream has between 1 byte and 1 MiB")
	}
	return t.s.write(ctx, func(s *session) error {
		return changed(s.exec("INSERT INTO stream_pieces (stream, at, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", stream, p.At, binary(&p.Data)))
	})
}

// Size is the length of a stream, 0 if there is none.
func (t *Streams) Size(ctx context.Context, stream string) (int64, error) {
	var size int64
	err := t.s.read(ctx).one([]any{&size}, "SELECT at + LENGTH(data) FROM stream_pieces WHERE stream = ? ORDER BY at DESC LIMIT 1", stream)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return size, t.s.explain(err)
}

// Read is the pieces that hold the bytes from an offset on: at most limit of
// them and about [MaxPiece] bytes, none at the end. The first may begin before.
func (t *Streams) Read(ctx context.Context, stream string, from int64, limit int) ([]Piece, error) {
	list, err := all(t.s.read(ctx), func(p *Piece) []any { return []any{number(&p.At), binary(&p.Data)} },
		`SELECT at, data FROM stream_pieces WHERE stream = ? AND at + LENGTH(data) > ?
			AND at >= COALESCE((SELECT MAX(at) FROM stream_pieces WHERE stream = ? AND at <= ?), 0) AND at < ?
		ORDER BY at LIMIT ?`, stream, from, stream, from, from+MaxPiece, limit)
	return values(list), t.s.explain(err)
}

// Sizes is how long the streams are whose names begin with prefix.
func (t *Streams) Sizes(ctx context.Context, prefix string) (map[string]int64, error) {
	type stream struct {
		name string
		size int64
	}
	cond, args := t.s.db.d.prefixed("stream", prefix)
	list, err := all(t.s.read(ctx), func(s *stream) []any { return []any{text(&s.name), number(&s.size)} },
		"SELECT stream, MAX(at + LENGTH(data)) FROM stream_pieces WHERE "+cond+" GROUP BY stream", args...)
	sizes := make(map[string]int64, len(list))
	for _, s := range list {
		sizes[s.name] = s.size
	}
	return sizes, t.s.explain(err)
}

// Delete removes streams.
func (t *Streams) Delete(ctx context.Context, streams []string) error {
	if len(streams) == 0 {
		return nil
	}
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.once().exec("DELETE FROM stream_pieces WHERE stream IN ("+marks(len(streams))+")", anys(streams)...)
		return err
	})
}
