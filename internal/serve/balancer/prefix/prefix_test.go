package prefix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPrompt(t *testing.T) {
	for _, tt := range []struct{ body, model, prompt string }{
		{`{"model":"m","messages":[{"role":"user","content":"a ] \" b"}],"stream":true}`, `"m"`, `[{"role":"user","content":"a ] \" b"}]`},
		{` { "stream" : true , "n":1, "x":{"messages":[1]}, "prompt" : "hi, \\" }`, ``, `"hi, \\"`},
		{`{"prompt":["a","b"],"model":"late"}`, ``, `["a","b"]`},
		{`{"model":"m","input":"text"}`, `"m"`, `"text"`},
		{`{"model":"m","messages":[{"role":"user","content":"cut of`, `"m"`, `[{"role":"user","content":"cut of`},
		{`{"model":"m","messages":null}`, ``, ``},
		{`{"model":"m"}`, ``, ``}, {`[1]`, ``, ``}, {``, ``, ``}, {`{"messages"`, ``, ``}, {`{"messages":`, ``, ``}, {`{]`, ``, ``}, {`{,}`, ``, ``},
	} {
		model, prompt, ok := Prompt([]byte(tt.body))
		if ok != (tt.prompt != "") || string(prompt) != tt.prompt || ok && string(model) != tt.model {
			t.Errorf("%s: model %s, prompt %s, %v", tt.body, model, prompt, ok)
		}
	}
}

func FuzzPrompt(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"a":"b"}]}`))
	f.Add([]byte(`{"a":[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, prompt, ok := Prompt(body)
		var whole map[string]json.RawMessage
		if !ok || json.Unmarshal(body, &whole) != nil {
			return
		}
		if _, ok := skippable(prompt); !ok {
			t.Errorf("%s: the prompt %q is no value", body, prompt)
		}
	})
}

// skippable reports whether text is one JSON value.
func skippable(text []byte) (json.RawMessage, bool) {
	var v json.RawMessage
	return v, json.Unmarshal(text, &v) == nil
}

func TestBlocksAreOfPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := bytes.Repeat([]byte("x"), rapid.IntRange(0, 2000).Draw(t, "n"))
		b := bytes.Clone(a)
		at := len(a)
		if len(b) > 0 {
			at = rapid.IntRange(0, len(b)-1).Draw(t, "at")
			b[at] = 'y'
		}
		x, y := Blocks(nil, nil, a), Blocks(nil, nil, b)
		if len(x) != len(a)/BlockBytes {
			t.Fatalf("%d blocks of %d bytes", len(x), len(a))
		}
		for i := range x {
			if (x[i] == y[i]) != (i < at/BlockBytes) {
				t.Fatalf("block %d, difference at %d", i, at)
			}
		}
		if z := Blocks(nil, []byte("other"), a); len(x) > 0 && z[0] == x[0] {
			t.Fatal("another model has the same blocks")
		}
	})
}

// The tree is a set of paths for each replica, of which the latest are kept.
func TestTreeAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		tree := NewTree(limit)
		type model map[uint64]int // block -> when
		have := []model{{}, {}, {}}
		clock := 0
		path := func() []uint64 {
			n := rapid.IntRange(0, 12).Draw(t, "length")
			out := make([]uint64, n)
			h := uint64(0)
			for i := range out {
				h = mix(h*31 + uint64(rapid.IntRange(1, 2).Draw(t, "branch")) + 1)
				out[i] = h
			}
			return out
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := rapid.IntRange(0, 2).Draw(t, "replica")
			blocks := path()
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				tree.Remove(id)
				have[id] = model{}
			default:
				tree.Add(blocks, id)
				cut := blocks[:min(len(blocks), limit)]
				for i := len(cut) - 1; i >= 0; i-- {
					clock++
					have[id][cut[i]] = clock
				}
				for len(have[id]) > limit {
					var oldest uint64
					for h, at := range have[id] {
						if oldest == 0 || at < have[id][oldest] {
							oldest = h
						}
					}
					delete(have[id], oldest)
				}
			}
			probe := path()
			got := make([]int, 3)
			tree.Match(probe, []int{0, 1, 2}, got)
			all := map[uint64]bool{}
			for id := range have {
				want := 0
				for want < len(probe) && have[id][probe[want]] > 0 {
					want++
				}
				if got[id] != want {
					t.Fatalf("replica %d: %d blocks, want %d", id, got[id], want)
				}
				for h := range have[id] {
					all[h] = true
				}
			}
			if tree.Len() != len(all) {
				t.Fatalf("%d blocks remembered, want %d", tree.Len(), len(all))
			}
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	tree, ids, out := NewTree(20_000), make([]int, 32), make([]int, 32)
	for i := range ids {
		ids[i] = i
	}
	body := []byte(`{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat("a long system prompt ", 1500) + `"}]}`)
	for i := range 1000 {
		tree.Add(Blocks(nil, nil, []byte(fmt.Sprint(i, string(body)))), i%32)
	}
	b.SetBytes(int64(len(body)))
	var blocks []uint64
	for b.Loop() {
		model, prompt, _ := Prompt(body)
		blocks = Blocks(blocks[:0], model, prompt)
		tree.Match(blocks, ids, out)
		tree.Add(blocks, 3)
	}
}
