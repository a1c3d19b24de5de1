// Package pickle writes Python pickles, protocol 4.
//
// Older clients of the API expect a few fields as pickles: the cause of a
// failure, a cluster's handle. This package can say just that much: plain
// values, calls of a named function, and objects with a state. There is no
// reader and there must never be one: reading a pickle runs its author's code.
package pickle

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
)

// Opcodes, named as Python's pickletools names them.
const (
	opProto       = "\x80\x04"
	opStop        = '.'
	opNone        = 'N'
	opTrue        = 0x88
	opFalse       = 0x89
	opBinInt      = 'J'
	opLong1       = 0x8a
	opBinFloat    = 'G'
	opBinUnicode  = 'X'
	opMark        = '('
	opTuple       = 't'
	opEmptyTuple  = ')'
	opEmptyList   = ']'
	opAppends     = 'e'
	opEmptyDict   = '}'
	opSetItems    = 'u'
	opStackGlobal = 0x93
	opReduce      = 'R'
	opNewObj      = 0x81
	opBuild       = 'b'
)

// Tuple is a Python tuple.
type Tuple []any

// Dict is a Python dict with its order kept. A map[string]any becomes a dict
// with sorted keys.
type Dict []Entry

// Entry is one key of a [Dict].
type Entry struct {
	Key   string
	Value any
}

// Global is a module's function or class; Name may be dotted.
type Global struct{ Module, Name string }

// Call is the result of calling Func with Args.
type Call struct {
	Func Global
	Args Tuple
}

// Object is an instance of Class that was made without its constructor and then
// given State.
type Object struct {
	Class Global
	State any
}

// None is the base64 of the pickle of None.
const None = "gAROLg=="

// Encode returns the pickle of v: nil, bool, string, integers, floats,
// [json.Number], []any, []string, map[string]any and the types of this package,
// nested at will. Anything else is an error.
func Encode(v any) ([]byte, error) {
	w := writer(opProto)
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return append(w, opStop), nil
}

// Base64 is Encode in the form in which pickles travel inside JSON.
func Base64(v any) (string, error) {
	b, err := Encode(v)
	return base64.StdEncoding.EncodeToString(b), err
}

// maxDepth is what readers are sure to take; it also ends cycles.
const maxDepth = 200

type writer []byte

func (w *writer) value(v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("pickle: nested deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		w.op(opNone)
	case bool:
		if v {
			w.op(opTrue)
		} else {
			w.op(opFalse)
		}
	case string:
		w.text(v)
	case int:
		w.integer(int64(v))
	case int64:
		w.integer(v)
	case float64:
		w.float(v)
	case json.Number:
		return w.number(v)
	case []any:
		return w.list(v, depth)
	case []string:
		list := make([]any, len(v))
		for i := range v {
			list[i] = v[i]
		}
		return w.list(list, depth)
	case Tuple:
		return w.tuple(v, depth)
	case map[string]any:
		d := make(Dict, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			d = append(d, Entry{k, v[k]})
		}
		return w.dict(d, depth)
	case Dict:
		return w.dict(v, depth)
	case Global:
		w.global(v)
	case Call:
		w.global(v.Func)
		if err := w.tuple(v.Args, depth); err != nil {
			return err
		}
		w.op(opReduce)
	case Object:
		w.global(v.Class)
		w.op(opEmptyTuple)
		w.op(opNewObj)
		if err := w.value(v.State, depth+1); err != nil {
			return err
		}
		w.op(opBuild)
	default:
		return fmt.Errorf("pickle: cannot write a %T", v)
	}
	return nil
}

func (w *writer) op(b byte) { *w = append(*w, b) }

// text writes a str. Bytes that are no UTF-8 would stop the reader, so they are
// replaced.
func (w *writer) text(s string) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	w.op(opBinUnicode)
	*w = binary.LittleEndian.AppendUint32(*w, uint32(len(s)))
	*w = append(*w, s...)
}

func (w *writer) integer(n int64) {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		w.op(opBinInt)
		*w = binary.LittleEndian.AppendUint32(*w, uint32(int32(n)))
		return
	}
	w.op(opLong1)
	w.op(8) // bytes, little-endian two's complement
	*w = binary.LittleEndian.AppendUint64(*w, uint64(n))
}

func (w *writer) float(f float64) {
	w.op(opBinFloat)
	*w = binary.BigEndian.AppendUint64(*w, math.Float64bits(f))
}

// number keeps what JSON keeps: 8 is an int and 8.0 a float.
func (w *writer) number(n json.Number) error {
	if i, err := n.Int64(); err == nil {
		w.integer(i)
		return nil
	}
	if _, isInt := new(big.Int).SetString(string(n), 10); isInt {
		return fmt.Errorf("pickle: %s does not fit into 64 bits", n)
	}
	f, err := n.Float64()
	if err != nil {
		return fmt.Errorf("pickle: %w", err)
	}
	w.float(f)
	return nil
}

func (w *writer) global(g Global) {
	w.text(g.Module)
	w.text(g.Name)
	w.op(opStackGlobal)
}

func (w *writer) tuple(t Tuple, depth int) error {
	if len(t) == 0 {
		w.op(opEmptyTuple)
		return nil
	}
	w.op(opMark)
	for _, v := range t {
		if err := w.value(v, depth+1); err != nil {
			return err
		}
	}
	w.op(opTuple)
	return nil
}

func (w *writer) list(l []any, depth int) error {
	w.op(opEmptyList)
	if len(l) == 0 {
		return nil
	}
	w.op(opMark)
	for _, v := range l {
		if err := w.value(v, depth+1); err != nil {
			return err
		}
	}
	w.op(opAppends)
	return nil
}

func (w *writer) dict(d Dict, depth int) error {
	w.op(opEmptyDict)
	if len(d) == 0 {
		return nil
	}
	w.op(opMark)
	for _, e := range d {
		w.text(e.Key)
		if err := w.value(e.Value, depth+1); err != nil {
			return fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	w.op(opSetItems)
	return nil
}
