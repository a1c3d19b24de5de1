package transfer

import (
	"fmt"
	"hash/crc32"
)

// The CRC-32C of a file is made of those of its pieces, so that pieces can be read and
// arrive in any order: putting a piece behind another one multiplies the CRC of the first
// by a matrix over bits, which depends on the length of the second.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A shift is such a matrix, by columns.
type shift [32]uint32

func (s *shift) apply(crc uint32) (out uint32) {
	for i := 0; crc != 0; i, crc = i+1, crc>>1 {
		if crc&1 != 0 {
			out ^= s[i]
		}
	}
	return out
}

func (s *shift) then(t *shift) (out shift) {
	for i := range s {
		out[i] = t.apply(s[i])
	}
	return out
}

// shiftBy is the matrix for so many bytes.
func shiftBy(bytes int64) shift {
	var result, power shift
	for i := range result {
		result[i] = 1 << i
	}
	// By one bit.
	power[0] = crc32.Castagnoli
	for i := 1; i < 32; i++ {
		power[i] = 1 << (i - 1)
	}
	for bits := uint64(bytes) * 8; bits != 0; bits >>= 1 {
		if bits&1 != 0 {
			result = result.then(&power)
		}
		power = power.then(&power)
	}
	return result
}

// crcOf is the CRC-32C of a file of that size whose pieces have these ones.
func crcOf(pieces []uint32, size int64) string {
	var crc uint32
	if len(pieces) > 0 {
		crc = pieces[0]
	}
	whole := shiftBy(chunk)
	for i, piece := range pieces[min(1, len(pieces)):] {
		by := &whole
		if length := size - int64(i+1)*chunk; length < chunk {
			last := shiftBy(length)
			by = &last
		}
		crc = by.apply(crc) ^ piece
	}
	return fmt.Sprintf("%08x", crc)
}
