package agentapi

import (
	"bytes"
	"testing"
)

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 1, 'x'})
	f.Add([]byte{3, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, payload, err := ReadFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteFrame(&again, kind, payload); err != nil || !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%v became %v", b, again.Bytes())
		}
	})
}
