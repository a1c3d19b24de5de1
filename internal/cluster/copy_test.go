package cluster

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestEveryByteIsCopied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Repeat([]byte(rapid.StringN(1, 50, 100).Draw(t, "unit")), rapid.IntRange(0, 20_000).Draw(t, "times"))
		var r io.Reader = bytes.NewReader(data)
		switch rapid.IntRange(0, 2).Draw(t, "reader") {
		case 1:
			r = iotest.HalfReader(r)
		case 2:
			r = iotest.DataErrReader(r)
		}
		var out bytes.Buffer
		n, err := copyLogBytes(&out, r)
		if err != nil || n != int64(len(data)) || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("copied %d of %d bytes: %v", n, len(data), err)
		}
	})
}

func TestABrokenStreamIsTold(t *testing.T) {
	var out bytes.Buffer
	n, err := copyLogBytes(&out, io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if n != 3 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d, %v", n, err)
	}
}
