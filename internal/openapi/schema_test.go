package openapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type leaf struct {
	Name string `json:"name"`
	Next *leaf  `json:"next,omitempty"`
}

type base struct {
	Env map[string]string `json:"env"`
}

type tree struct {
	base
	Leaves []leaf          `json:"leaves"`
	Count  int             `json:"count"`
	Share  *float64        `json:"share"`
	Pair   [2]string       `json:"pair"`
	Any    any             `json:"any"`
	Raw    json.RawMessage `json:"raw"`
	Hidden string          `json:"-"`
}

func TestSchemas(t *testing.T) {
	c := New(nil)
	c.Sent(reflect.TypeFor[tree]())
	c.Received(reflect.TypeFor[tree](), []string{"leaves"})
	got, err := json.Marshal(c.Schemas)
	if err != nil {
		t.Fatal(err)
	}
	want := `{
"Leaf":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"next":{"anyOf":[{"$ref":"#/components/schemas/Leaf"},{"type":"null"}]}}},
"LeafInput":{"type":"object","properties":{"name":{"type":["string","null"]},"next":{"anyOf":[{"$ref":"#/components/schemas/LeafInput"},{"type":"null"}]}}},
"Tree":{"type":"object","required":["env","leaves","count","share","pair","any","raw"],"properties":{
 "env":{"type":["object","null"],"additionalProperties":{"type":"string"}},"leaves":{"type":["array","null"],"items":{"$ref":"#/components/schemas/Leaf"}},
 "count":{"type":"integer"},"share":{"type":["number","null"]},"pair":{"type":"array","items":{"type":"string"},"minItems":2,"maxItems":2},"any":{},"raw":{}}},
"TreeInput":{"type":"object","required":["leaves"],"properties":{
 "env":{"type":["object","null"],"additionalProperties":{"type":"string"}},"leaves":{"type":"array","items":{"$ref":"#/components/schemas/LeafInput"}},
 "count":{"type":["integer","null"]},"share":{"type":["number","null"]},
 "pair":{"anyOf":[{"type":"array","items":{"type":"string"},"minItems":2,"maxItems":2},{"type":"null"}]},"any":{},"raw":{}}}}`
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		t.Fatal("not JSON")
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}
}
