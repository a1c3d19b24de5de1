package state

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/skypilot-go/sky/internal/envelope"
)

// Columns that may hold secrets are encrypted, each value for its row and column
// (package envelope). Rows in clear, of an earlier sky, are read all the same,
// and sealed by [Store.Reseal].

// Unlock makes the store encrypt what may be secret, and read what is encrypted.
// Without it everything is written in clear: only tests and tools do that.
func (s *Store) Unlock(r *envelope.Ring) { s.ring.Store(r) }

// ErrLocked means that an encrypted value is read from a store without keys.
var ErrLocked = errors.New("state: the value is encrypted, and the store has no keys")

// seal is a value as it is stored at a place.
func (s *Store) seal(plain []byte, at envelope.Place) []byte {
	if r := s.ring.Load(); r != nil && len(plain) > 0 {
		return r.Seal(plain, at)
	}
	return plain
}

// open is the value that is stored at a place.
func (s *Store) open(stored []byte, at envelope.Place) ([]byte, error) {
	if !envelope.Sealed(stored) {
		return stored, nil
	}
	r := s.ring.Load()
	if r == nil {
		return nil, ErrLocked
	}
	return r.Open(stored, at)
}

// cell is an encrypted column of a row. Its row must be known when it is written
// or scanned: keys stand before it in field lists.
type cell struct {
	s             *Store
	table, column string
	row           func() string
}

func (c cell) place() envelope.Place {
	return envelope.Place{Table: c.table, Row: c.row(), Column: c.column}
}

// in makes the cell of a row whose key is text.
func (s *Store) in(table string, row *string, column string) cell {
	return cell{s, table, column, func() string { return *row }}
}

// inNumbered makes the cell of a row whose key is a number.
func (s *Store) inNumbered(table string, row *int, column string) cell {
	return cell{s, table, column, func() string { return strconv.Itoa(*row) }}
}

// sealedBytes keeps bytes encrypted in a column of bytes; none is NULL.
type sealedBytes struct {
	cell
	b *[]byte
}

func (c cell) bytes(b *[]byte) sealedBytes { return sealedBytes{c, b} }

func (c sealedBytes) Value() (driver.Value, error) {
	stored := c.s.seal(*c.b, c.place())
	return binary(&stored).Value()
}

func (c sealedBytes) Scan(src any) error {
	var stored []byte
	if err := binary(&stored).Scan(src); err != nil {
		return err
	}
	plain, err := c.s.open(stored, c.place())
	*c.b = plain
	return err
}

// sealedValue keeps a value encrypted in a column of text, as the column of it
// would keep it in clear.
type sealedValue struct {
	cell
	in interface {
		driver.Valuer
		Scan(any) error
	}
}

func (c cell) of(in interface {
	driver.Valuer
	Scan(any) error
}) sealedValue {
	return sealedValue{c, in}
}

func (c sealedValue) Value() (driver.Value, error) {
	v, err := c.in.Value()
	if err != nil {
		return nil, err
	}
	plain, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("an encrypted text is written as %T", v)
	}
	return envelope.Text(c.s.seal([]byte(plain), c.place())), nil
}

func (c sealedValue) Scan(src any) error {
	if src == nil { // a list is read without it
		return nil
	}
	var stored string
	if err := text(&stored).Scan(src); err != nil {
		return err
	}
	plain, err := c.s.open(envelope.FromText(stored), c.place())
	if err != nil {
		return err
	}
	return c.in.Scan(string(plain))
}

// Sealed is a value of a row that is decrypted when it is asked for, so that
// lists cost nothing. The zero value is no bytes.
type Sealed struct {
	plain  []byte // of a value that was not read from the database
	stored []byte
	from   *cell
}

// Seal is a value that will be encrypted when its row is written.
func Seal(plain []byte) Sealed { return Sealed{plain: plain} }

// Open is the value itself.
func (v Sealed) Open() ([]byte, error) {
	if v.from == nil {
		return v.plain, nil
	}
	return v.from.s.open(v.stored, v.from.place())
}

// Equal reports whether two values are the same in clear.
func (v Sealed) Equal(w Sealed) bool {
	a, err := v.Open()
	b, err2 := w.Open()
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// String keeps the value out of texts.
func (v Sealed) String() string { return "<redacted>" }

// GoString keeps the value out of texts.
func (v Sealed) GoString() string { return v.String() }

// LogValue keeps the value out of logs.
func (v Sealed) LogValue() slog.Value { return slog.StringValue(v.String()) }

// MarshalText keeps the value out of JSON.
func (v Sealed) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// sealedLater is the column of a [Sealed].
type sealedLater struct {
	cell
	v *Sealed
}

func (c cell) later(v *Sealed) sealedLater { return sealedLater{c, v} }

func (c sealedLater) Value() (driver.Value, error) {
	stored := c.v.stored
	if c.v.from == nil || c.v.from.place() != c.place() {
		plain, err := c.v.Open()
		if err != nil {
			return nil, err
		}
		stored = c.s.seal(plain, c.place())
	}
	return binary(&stored).Value()
}

func (c sealedLater) Scan(src any) error {
	c.v.plain, c.v.from = nil, nil
	if err := binary(&c.v.stored).Scan(src); err != nil {
		return err
	}
	// The key of the row as it is now: the struct it is in may be copied.
	at := c.place()
	c.v.from = &cell{c.s, at.Table, at.Column, func() string { return at.Row }}
	return nil
}
