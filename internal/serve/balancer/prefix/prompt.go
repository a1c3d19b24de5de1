// Package prefix remembers which replica has seen the beginning of which prompts,
// so that a request goes where its prefix is in the cache.
//
// A prompt is cut into blocks. The hash of a block covers all blocks before it, so
// equal hashes mean equal prefixes, and the hashes of all prompts form a tree.
package prefix

import "hash/maphash"

// BlockBytes is the length of a block: about as many tokens as a block of vLLM's
// cache times four.
const BlockBytes = 256

var seed = maphash.MakeSeed()

// Blocks appends the hashes of a prompt's whole blocks to out. The model is a part
// of every hash.
func Blocks(out []uint64, model, prompt []byte) []uint64 {
	h := maphash.Bytes(seed, model)
	for len(prompt) >= BlockBytes {
		h = mix(h*0x9e3779b97f4a7c15 ^ maphash.Bytes(seed, prompt[:BlockBytes]))
		out = append(out, h)
		prompt = prompt[BlockBytes:]
	}
	return out
}

func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Prompt finds the prompt in the JSON body of a request to an OpenAI-style API, or
// in its beginning: the raw text of "messages", "prompt" or "input". The raw text
// will do, since the next turn of a conversation comes from the same client and
// begins with the same text. The model counts if it comes before the prompt, since
// the end of a long body is not seen. ok is false if there is no prompt.
func Prompt(body []byte) (model, prompt []byte, ok bool) {
	s := scanner{body, 0}
	s.space()
	if !s.take('{') {
		return nil, nil, false
	}
	for {
		s.space()
		key, whole := s.value()
		if !whole || len(key) < 2 || key[0] != '"' {
			return model, prompt, prompt != nil
		}
		s.space()
		if !s.take(':') {
			return model, prompt, prompt != nil
		}
		s.space()
		v, whole := s.value()
		switch string(key[1 : len(key)-1]) {
		case "model":
			if prompt == nil {
				model = v
			}
		case "messages", "prompt", "input":
			if len(v) > 0 && (v[0] == '[' || v[0] == '"') {
				prompt = v
			}
		}
		s.space()
		if !whole || !s.take(',') {
			return model, prompt, prompt != nil
		}
	}
}

// scanner passes over JSON without decoding it.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// value passes over a value and returns its text. whole is false if the text ends
// before the value does.
func (s *scanner) value() (v []byte, whole bool) {
	start, depth := s.i, 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if !s.quoted() {
				return s.b[start:], false
			}
			if depth == 0 {
				return s.b[start:s.i], true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.b[start:s.i], true
			}
			if depth--; depth == 0 {
				s.i++
				return s.b[start:s.i], true
			}
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return s.b[start:s.i], true
			}
		}
		s.i++
	}
	return s.b[start:], false
}

// quoted passes over a string.
func (s *scanner) quoted() bool {
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return true
		}
	}
	s.i = len(s.b)
	return false
}
