package state

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// packAbove is the size from which a value is compressed: below, it saves nothing
// that counts.
const packAbove = 4 << 10

// zstdMagic begins what is compressed. No JSON begins with it.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

var packer = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var unpacker = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err)
	}
	return d
})

// pack compresses JSON that is large.
func pack(plain []byte) []byte {
	if len(plain) < packAbove {
		return plain
	}
	return packer().EncodeAll(plain, nil)
}

func unpack(stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, zstdMagic) {
		return stored, nil
	}
	plain, err := unpacker().DecodeAll(stored, nil)
	if err != nil {
		return nil, fmt.Errorf("state: unpacking a stored value: %w", err)
	}
	return plain, nil
}

// packedBytes is sealedBytes that are compressed before: results of requests are
// lists of thousands of records that look alike.
type packedBytes struct {
	cell
	b *[]byte
}

func (c cell) packed(b *[]byte) packedBytes { return packedBytes{c, b} }

func (c packedBytes) Value() (driver.Value, error) {
	stored := pack(*c.b)
	return c.bytes(&stored).Value()
}

func (c packedBytes) Scan(src any) error {
	var stored []byte
	if err := c.bytes(&stored).Scan(src); err != nil {
		return err
	}
	plain, err := unpack(stored)
	*c.b = plain
	return err
}
