package transfer

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"github.com/zeebo/blake3"
)

// The hash of a file of up to 8 MiB is its BLAKE3 hash, written "b3:…". That of a
// larger one is the BLAKE3 hash of the hashes of its pieces of 8 MiB, one after
// another, written "b3x8m:…": the pieces of a file are hashed where they are read or
// arrive, in any order and at the same time.

type sum = [32]byte

func sumOf(p []byte) sum { return blake3.Sum256(p) }

// hashOf makes the hash of the hashes of all pieces; a file without content has one
// piece.
func hashOf(pieces []sum) string {
	if len(pieces) == 1 {
		return "b3:" + hex.EncodeToString(pieces[0][:])
	}
	h := blake3.New()
	for i := range pieces {
		h.Write(pieces[i][:])
	}
	return "b3x8m:" + hex.EncodeToString(h.Sum(nil))
}

// pieces is how many a file has.
func pieces(size int64) int {
	return max(1, int((size+chunk-1)/chunk))
}

// digester makes a digest of the kind of another one, such as "sha256:…"; nil: the kind is
// not known.
func digester(like string, size int64) hash.Hash {
	switch kind, _, _ := strings.Cut(like, ":"); kind {
	case "sha256":
		return sha256.New()
	case "git":
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return nil
}

// digest is what a digester has made, in the form of like.
func digest(like string, h hash.Hash) string {
	kind, _, _ := strings.Cut(like, ":")
	return kind + ":" + hex.EncodeToString(h.Sum(nil))
}
