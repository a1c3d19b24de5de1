package pickle

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

// FuzzEncode: every JSON value is either refused or written so that a reader of
// plain values gets the same again and nothing is left over.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{
		`null`, `true`, `[]`, `{}`, `-1`, `2147483648`, `9223372036854775807`, `1e400`, `0.1`, `-0.0`, `""`, `"é\u0000\ud800"`,
		`{"b":[1,{"a":null}],"a":"x"}`, `[[[[[]]]]]`, `123456789012345678901234567890`, "\"\xff\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return
		}
		p, err := Encode(v)
		if err != nil {
			return
		}
		got, err := read(p)
		if err != nil {
			t.Fatalf("%s is written as %q: %v", text, p, err)
		}
		if want := expected(v); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read back as %#v, want %#v", text, got, want)
		}
	})
}

// expected is what a reader gets of a JSON value: numbers as int64 or float64.
func expected(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return n.Int64()
		}
		x, _ := v.Float64()
		return x
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = expected(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[strings.ToValidUTF8(k, "\uFFFD")] = expected(x)
		}
		return out
	}
	return v
}

type mark struct{}

// read understands the opcodes of plain values, and nothing else.
func read(p []byte) (any, error) {
	rest, ok := bytes.CutPrefix(p, []byte(opProto))
	if !ok {
		return nil, errors.New("no protocol 4")
	}
	var stack []any
	push := func(v any) { stack = append(stack, v) }
	take := func(n int) ([]byte, error) {
		if n < 0 || n > len(rest) {
			return nil, errors.New("cut off")
		}
		b := rest[:n]
		rest = rest[n:]
		return b, nil
	}
	// above is what lies above the last mark.
	above := func() ([]any, error) {
		for i := len(stack) - 1; i > 0; i-- {
			if _, is := stack[i].(mark); is {
				items := stack[i+1:]
				stack = stack[:i]
				return items, nil
			}
		}
		return nil, errors.New("no mark")
	}
	for {
		op, err := take(1)
		if err != nil {
			return nil, err
		}
		switch op[0] {
		case opStop:
			if len(rest) > 0 || len(stack) != 1 {
				return nil, fmt.Errorf("%d bytes and %d values are left", len(rest), len(stack))
			}
			return stack[0], nil
		case opNone:
			push(nil)
		case opTrue:
			push(true)
		case opFalse:
			push(false)
		case opBinInt:
			b, err := take(4)
			if err != nil {
				return nil, err
			}
			push(int64(int32(binary.LittleEndian.Uint32(b))))
		case opLong1:
			n, err := take(1)
			if err != nil {
				return nil, err
			}
			b, err := take(int(n[0]))
			if err != nil || len(b) > 8 {
				return nil, errors.New("a long number")
			}
			var full [8]byte
			if len(b) > 0 && b[len(b)-1]&0x80 != 0 {
				full = [8]byte{255, 255, 255, 255, 255, 255, 255, 255}
			}
			copy(full[:], b)
			push(int64(binary.LittleEndian.Uint64(full[:])))
		case opBinFloat:
			b, err := take(8)
			if err != nil {
				return nil, err
			}
			push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		case opBinUnicode:
			n, err := take(4)
			if err != nil {
				return nil, err
			}
			b, err := take(int(binary.LittleEndian.Uint32(n)))
			if err != nil {
				return nil, err
			}
			push(string(b))
		case opMark:
			push(mark{})
		case opEmptyList:
			push([]any{})
		case opEmptyDict:
			push(map[string]any{})
		case opAppends:
			items, err := above()
			if err != nil {
				return nil, err
			}
			list, ok := stack[len(stack)-1].([]any)
			if !ok {
				return nil, errors.New("items without a list")
			}
			stack[len(stack)-1] = append(list, items...)
		case opSetItems:
			items, err := above()
			if err != nil {
				return nil, err
			}
			dict, ok := stack[len(stack)-1].(map[string]any)
			if !ok || len(items)%2 != 0 {
				return nil, errors.New("entries without a dict")
			}
			for i := 0; i < len(items); i += 2 {
				key, ok := items[i].(string)
				if !ok {
					return nil, errors.New("a key that is no text")
				}
				dict[key] = items[i+1]
			}
		default:
			return nil, fmt.Errorf("opcode %#x", op[0])
		}
	}
}
