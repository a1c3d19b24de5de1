package state

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A row is a struct whose fields stand in one list, in the order of the column
// names. The list serves both ways: as arguments of a statement and as
// destinations of a scan.

// columns is the names of a table's columns, in the order of the field list.
type columns []string

func (c columns) list() string { return strings.Join(c, ", ") }

// of is the list with a table's alias before each name.
func (c columns) of(alias string) string {
	return strings.ReplaceAll(alias+"."+strings.Join(c, ", "+alias+"."), alias+"."+absent, absent)
}

// absent stands for a column that a list is read without.
const absent = "NULL"

// without is the columns with nothing in the place of some.
func (c columns) without(names ...string) columns {
	out := slices.Clone(c)
	for i, name := range out {
		if slices.Contains(names, name) {
			out[i] = absent
		}
	}
	return out
}

func (c columns) marks() string { return marks(len(c)) }

// set is "a = ?, b = ?" for an UPDATE.
func (c columns) set() string { return strings.Join(c, " = ?, ") + " = ?" }

// marks is n placeholders.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// timeColumn keeps a time as Unix nanoseconds, the zero time as 0.
type timeColumn struct{ t *time.Time }

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func (c timeColumn) Value() (driver.Value, error) { return nanos(*c.t), nil }

func (c timeColumn) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", src)
	}
	*c.t = fromNanos(n)
	return nil
}

// jsonColumn keeps a nested value as JSON text.
type jsonColumn struct{ v any }

func (c jsonColumn) Value() (driver.Value, error) {
	b, err := json.Marshal(c.v)
	return string(b), err
}

func (c jsonColumn) Scan(src any) error {
	switch src := src.(type) {
	case string:
		return json.Unmarshal([]byte(src), c.v)
	case []byte:
		return json.Unmarshal(src, c.v)
	}
	return fmt.Errorf("a nested value is stored as %T", src)
}

// bytesColumn keeps bytes; none is NULL.
type bytesColumn struct{ b *[]byte }

func (c bytesColumn) Value() (driver.Value, error) {
	if len(*c.b) == 0 {
		return nil, nil
	}
	return *c.b, nil
}

func (c bytesColumn) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		*c.b = nil
	case []byte:
		*c.b = append([]byte(nil), src...)
	case string:
		*c.b = []byte(src)
	default:
		return fmt.Errorf("bytes are stored as %T", src)
	}
	return nil
}

// intColumn and textColumn keep Go's named and sized types as what both
// databases have.
type intColumn[T ~int | ~int64] struct{ v *T }

func (c intColumn[T]) Value() (driver.Value, error) { return int64(*c.v), nil }

func (c intColumn[T]) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("a number is stored as %T", src)
	}
	*c.v = T(n)
	return nil
}

type textColumn[T ~string] struct{ v *T }

func (c textColumn[T]) Value() (driver.Value, error) { return string(*c.v), nil }

func (c textColumn[T]) Scan(src any) error {
	switch src := src.(type) {
	case string:
		*c.v = T(src)
	case []byte:
		*c.v = T(src)
	default:
		return fmt.Errorf("text is stored as %T", src)
	}
	return nil
}

// boolColumn accepts what either database hands back for a truth value.
type boolColumn struct{ v *bool }

func (c boolColumn) Value() (driver.Value, error) { return *c.v, nil }

func (c boolColumn) Scan(src any) error {
	switch src := src.(type) {
	case bool:
		*c.v = src
	case int64:
		*c.v = src != 0
	default:
		return fmt.Errorf("a truth value is stored as %T", src)
	}
	return nil
}

func text[T ~string](v *T) textColumn[T]        { return textColumn[T]{v} }
func number[T ~int | ~int64](v *T) intColumn[T] { return intColumn[T]{v} }
func instant(v *time.Time) timeColumn           { return timeColumn{v} }
func nested(v any) jsonColumn                   { return jsonColumn{v} }
func binary(v *[]byte) bytesColumn              { return bytesColumn{v} }
func truth(v *bool) boolColumn                  { return boolColumn{v} }
