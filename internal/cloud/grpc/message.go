package grpc

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Messages are structs of Go. A field with the tag `pb:"3"` is field 3 of the message, others
// are no part of it. What the types of fields stand for:
//
//	string, []byte, bool, int32, int64, uint32    themselves; enumerations are int32
//	*T, T, any (only to be written)               a message; one that is nil, or zero, is absent
//	time.Time                                     google.protobuf.Timestamp
//	[]T                                           repeated, numbers packed
//	map[string]string                             map<string, string>
//
// Zero values are not sent, as proto3 has it: a message that has to be sent although it is
// empty is a *T. Fields that a struct does not know are passed over.

var (
	timeType  = reflect.TypeFor[time.Time]()
	errBroken = errors.New("it is no message of the kind that was expected")
)

// Marshal writes a message: a struct, or a pointer to one.
func Marshal(message any) []byte {
	v := reflect.ValueOf(message)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return appendMessage(nil, v)
}

func number(f reflect.StructField) protowire.Number {
	n, _ := strconv.Atoi(f.Tag.Get("pb"))
	return protowire.Number(n)
}

func appendMessage(b []byte, v reflect.Value) []byte {
	if v.Type() == timeType {
		at := v.Interface().(time.Time)
		b = appendField(b, 1, reflect.ValueOf(at.Unix()))
		return appendField(b, 2, reflect.ValueOf(int32(at.Nanosecond())))
	}
	for i := range v.NumField() {
		if n := number(v.Type().Field(i)); n > 0 && !v.Field(i).IsZero() {
			b = appendField(b, n, v.Field(i))
		}
	}
	return b
}

func appendField(b []byte, n protowire.Number, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v.String())
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32:
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), varint(v))
	case reflect.Pointer, reflect.Interface:
		return appendField(b, n, v.Elem())
	case reflect.Struct:
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), appendMessage(nil, v))
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			pair := appendField(appendField(nil, 1, entry.Key()), 2, entry.Value())
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), pair)
		}
		return b
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Uint8:
			return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v.Bytes())
		case reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Bool:
			var packed []byte
			for i := range v.Len() {
				packed = protowire.AppendVarint(packed, varint(v.Index(i)))
			}
			return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), packed)
		}
		for i := range v.Len() {
			b = appendField(b, n, v.Index(i))
		}
		return b
	}
	panic(fmt.Sprintf("grpc: a message has no fields of %v", v.Type()))
}

func varint(v reflect.Value) uint64 {
	switch {
	case v.CanInt():
		return uint64(v.Int())
	case v.CanUint():
		return v.Uint()
	}
	return protowire.EncodeBool(v.Bool())
}

// Unmarshal reads a message into what a pointer to a struct points to.
func Unmarshal(b []byte, message any) error { return readMessage(b, reflect.ValueOf(message).Elem()) }

func readMessage(b []byte, v reflect.Value) error {
	if v.Type() == timeType {
		var at struct {
			Seconds int64 `pb:"1"`
			Nanos   int32 `pb:"2"`
		}
		err := Unmarshal(b, &at)
		v.Set(reflect.ValueOf(time.Unix(at.Seconds, int64(at.Nanos)).UTC()))
		return err
	}
	fields := map[protowire.Number]int{}
	for i := range v.NumField() {
		fields[number(v.Type().Field(i))] = i
	}
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errBroken
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return errBroken
		}
		if i, ok := fields[n]; ok {
			if err := readField(b[:size], kind, v.Field(i)); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// readField reads one value of a field, of which there may be more.
func readField(b []byte, kind protowire.Type, v reflect.Value) error {
	if kind == protowire.VarintType {
		x, _ := protowire.ConsumeVarint(b)
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(x != 0)
		case reflect.Int32:
			v.SetInt(int64(int32(x)))
		case reflect.Int64:
			v.SetInt(int64(x))
		case reflect.Uint32:
			v.SetUint(x & math.MaxUint32)
		case reflect.Slice:
			return readElement(b, kind, v)
		default:
			return errBroken
		}
		return nil
	}
	if kind != protowire.BytesType {
		return errBroken
	}
	inner, _ := protowire.ConsumeBytes(b)
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(inner))
	case reflect.Struct:
		return readMessage(inner, v)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return readMessage(inner, v.Elem())
	case reflect.Map:
		var pair struct {
			Key   string `pb:"1"`
			Value string `pb:"2"`
		}
		if err := Unmarshal(inner, &pair); err != nil {
			return err
		}
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(reflect.ValueOf(pair.Key), reflect.ValueOf(pair.Value))
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Uint8:
			v.SetBytes(append([]byte{}, inner...))
		case reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Bool:
			for len(inner) > 0 {
				_, size := protowire.ConsumeVarint(inner)
				if size < 0 {
					return errBroken
				}
				if err := readElement(inner[:size], protowire.VarintType, v); err != nil {
					return err
				}
				inner = inner[size:]
			}
		default:
			return readElement(b, kind, v)
		}
	default:
		return errBroken
	}
	return nil
}

func readElement(b []byte, kind protowire.Type, list reflect.Value) error {
	element := reflect.New(list.Type().Elem()).Elem()
	if err := readField(b, kind, element); err != nil {
		return err
	}
	list.Set(reflect.Append(list, element))
	return nil
}
