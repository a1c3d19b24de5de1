package server

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// filled makes a value of a type in which nothing is empty.
func filled(of reflect.Type, depth int) reflect.Value {
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
		v.Elem().Set(filled(of.Elem(), depth))
	case reflect.Struct:
		for i := range of.NumField() {
			if of.Field(i).IsExported() && depth < 6 {
				v.Field(i).Set(filled(of.Field(i).Type, depth+1))
			}
		}
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 { // json.RawMessage
			v.SetBytes([]byte(`{"a":"b=c"}`))
		} else {
			v.Set(reflect.Append(v, filled(of.Elem(), depth+1)))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(of))
		v.SetMapIndex(filled(of.Key(), depth), filled(of.Elem(), depth+1))
	case reflect.Interface:
		v.Set(reflect.ValueOf(map[string]any{"a": "b=c"}))
	case reflect.String:
		v.SetString("a=b")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(7.5)
	}
	return v
}

// What stays of the body of a request that has ended is read again: when its log is
// asked for once more, by dumps, by whoever lists requests.
func TestTheBodiesOfEndedRequestsCanBeRead(t *testing.T) {
	env := newTestEnv(t)
	for _, rt := range Routes() {
		if rt.Body == nil {
			continue
		}
		body, err := json.Marshal(filled(rt.Body.of, 0).Interface())
		if err != nil {
			t.Fatalf("%s: %v", rt.Path, err)
		}
		r := &state.Request{ID: rt.Method + rt.Path, Name: "sky.x", Status: api.RequestSucceeded, CreatedAt: env.store.Now(), FinishedAt: env.store.Now(), Body: body}
		if err := env.store.Requests().Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		kept, err := env.store.Requests().Get(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(kept.Body, reflect.New(rt.Body.of).Interface()); err != nil {
			t.Errorf("%s: %v: %s", rt.Path, err, kept.Body)
		}
	}
}

// Python does not tell 5.0 from 5.
func TestWholeNumbersMayHaveAFraction(t *testing.T) {
	s := body[struct {
		Tail int            `json:"tail"`
		IDs  []int          `json:"ids"`
		Part float64        `json:"part"`
		Text string         `json:"text"`
		Any  map[string]any `json:"any"`
	}]()
	for raw, want := range map[string]string{
		`{"tail":5.0}`: `{"tail":5}`,
		`{"tail":-5.00,"ids":[1.0, 2],"text":"5.0 \"6.0\" \\"}`: `{"tail":-5,"ids":[1, 2],"text":"5.0 \"6.0\" \\"}`,
		`{"tail":5,"part":5.0,"any":{"x":5.0}}`:                 `{"tail":5,"part":5.0,"any":{"x":5.0}}`,
		`{"tail":5.5}`:                                          `{"tail":5.5}`,
		`{"tail":1e0}`:                                          `{"tail":1e0}`,
		`{"tail":"5.0"}`:                                        `{"tail":"5.0"}`,
		`{"tail":5.0`:                                           `{"tail":5.0`,
		`{"tail":5.0,"text":"`:                                  `{"tail":5.0,"text":"`,
	} {
		if got := string(s.whole([]byte(raw))); got != want {
			t.Errorf("%s became %s", raw, got)
		}
	}
	if problems := s.check(s.whole([]byte(`{"tail":5.5}`))); len(problems) != 1 {
		t.Errorf("5.5 is taken for a whole number: %v", problems)
	}
}
