// Package envelope encrypts values that must be kept on disk: each value with a
// data key of its own, and that data key with a master key of the installation.
//
// A value is bound to its [Place], a table's row and column: copied to another
// row it cannot be opened there. To change the master key only the data keys are
// encrypted again ([Ring.Rewrap]).
//
// A sealed value is
//
//	magic "\x00SKY\x01"         5 bytes
//	id of the master key        8
//	salt                       24
//	data key, encrypted        48   AES-256-GCM, key: HMAC-SHA256(master key, "wrap" + salt)
//	value, encrypted         16+n   AES-256-GCM, key: the data key
//
// Both keys encrypt once and then never again, so both nonces are zero.
package envelope

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

const (
	magic      = "\x00SKY\x01"
	idSize     = 8
	saltSize   = 24
	keySize    = 32
	tagSize    = 16
	headerSize = len(magic) + idSize + saltSize + keySize + tagSize
	// textMagic begins sealed values in columns of text; base64 of the rest follows.
	textMagic = "sky-sealed:1:"
)

// ID tells master keys apart. It follows from the key and says nothing about it.
type ID string

// Key is a master key.
type Key struct {
	id  ID
	raw [keySize]byte
}

// NewKey is a random key.
func NewKey() Key {
	var raw [keySize]byte
	_, _ = rand.Read(raw[:]) // never fails
	return keyOf(raw)
}

// ParseKey reads what [Key.Text] writes.
func ParseKey(text string) (Key, error) {
	text = strings.TrimRight(text, "=")
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		raw, err = base64.RawURLEncoding.DecodeString(text)
	}
	if err != nil || len(raw) != keySize {
		return Key{}, errors.New("an encryption key is 32 random bytes in base64, such as `openssl rand -base64 32` prints")
	}
	return keyOf([keySize]byte(raw)), nil
}

func keyOf(raw [keySize]byte) Key {
	sum := sha256.Sum256(append([]byte("sky encryption key id\x00"), raw[:]...))
	return Key{ID(hex.EncodeToString(sum[:idSize])), raw}
}

// ID is the name of the key.
func (k Key) ID() ID { return k.id }

// Text is the key itself in base64.
func (k Key) Text() string { return base64.StdEncoding.EncodeToString(k.raw[:]) }

// String keeps the key out of logs.
func (k Key) String() string { return "key " + string(k.id) }

// GoString keeps the key out of logs.
func (k Key) GoString() string { return k.String() }

// Place is where a value stands.
type Place struct{ Table, Row, Column string }

// bytes is the place as associated data, in which no two places look alike.
func (p Place) bytes() []byte {
	return fmt.Appendf(nil, "%d:%s%d:%s%d:%s", len(p.Table), p.Table, len(p.Row), p.Row, len(p.Column), p.Column)
}

// UnknownKeyError means that a value was sealed with a key that is not there.
type UnknownKeyError struct{ ID ID }

func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the value is encrypted with key %s, which this server does not have", e.ID)
}

// ErrForged means that a value was changed, or moved from another place.
var ErrForged = errors.New("the encrypted value was damaged, or moved from another row")

// Ring holds the master keys of an installation. One is current: it seals. All
// of them open. Its methods may be called concurrently.
type Ring struct {
	mu   sync.RWMutex
	keys []Key // the current one first
}

// NewRing holds keys of which the first is current.
func NewRing(current Key, others ...Key) *Ring {
	r := &Ring{keys: []Key{current}}
	for _, k := range others {
		r.Add(k)
	}
	return r
}

// Add lets the ring open what k sealed.
func (r *Ring) Add(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.keys, func(h Key) bool { return h.id == k.id }) {
		r.keys = append(r.keys, k)
	}
}

// Use makes k the current key.
func (r *Ring) Use(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append([]Key{k}, slices.DeleteFunc(slices.Clone(r.keys), func(h Key) bool { return h.id == k.id })...)
}

// Follow takes over the keys of another ring, and which of them is current.
func (r *Ring) Follow(other *Ring) {
	other.mu.RLock()
	keys := slices.Clone(other.keys)
	other.mu.RUnlock()
	r.Use(keys[0])
	for _, k := range keys[1:] {
		r.Add(k)
	}
}

// Current is the key that seals.
func (r *Ring) Current() Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keys[0]
}

// Key is the key of that id.
func (r *Ring) Key(id ID) (Key, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return Key{}, false
}

// wrapper encrypts the data key that goes with salt.
func (k Key) wrapper(salt []byte) cipher.AEAD {
	h := hmac.New(sha256.New, k.raw[:])
	h.Write([]byte("wrap"))
	h.Write(salt)
	return gcm(h.Sum(nil))
}

func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length is a constant
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

var zeroNonce = make([]byte, 12)

// Seal encrypts a value for its place with the current key.
func (r *Ring) Seal(plain []byte, at Place) []byte {
	var data [keySize]byte
	_, _ = rand.Read(data[:])
	where := at.bytes()
	out := make([]byte, 0, headerSize+len(plain)+tagSize)
	out = r.Current().header(out, data[:], where)
	return gcm(data[:]).Seal(out, zeroNonce, plain, where)
}

// header appends everything that stands before the encrypted value.
func (k Key) header(out, data, where []byte) []byte {
	id, _ := hex.DecodeString(string(k.id))
	out = append(append(out, magic...), id...)
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:])
	out = append(out, salt[:]...)
	return k.wrapper(salt[:]).Seal(out, zeroNonce, data, where)
}

// Open decrypts a value of that place. One that is not sealed is returned as it
// is. An [*UnknownKeyError] names a key that is missing; [ErrForged] is a value
// that was changed or is not of that place.
func (r *Ring) Open(stored []byte, at Place) ([]byte, error) {
	if !Sealed(stored) {
		return stored, nil
	}
	where := at.bytes()
	_, data, err := r.unwrap(stored, where)
	if err != nil {
		return nil, fmt.Errorf("%s of %s %s: %w", at.Column, at.Table, at.Row, err)
	}
	plain, err := gcm(data).Open(nil, zeroNonce, stored[headerSize:], where)
	if err != nil {
		return nil, fmt.Errorf("%s of %s %s: %w", at.Column, at.Table, at.Row, ErrForged)
	}
	return plain, nil
}

// unwrap is the master key and the data key of a sealed value.
func (r *Ring) unwrap(stored, where []byte) (Key, []byte, error) {
	if len(stored) < headerSize+tagSize {
		return Key{}, nil, ErrForged
	}
	id := KeyOf(stored)
	k, ok := r.Key(id)
	if !ok {
		return Key{}, nil, &UnknownKeyError{id}
	}
	rest := stored[len(magic)+idSize:]
	data, err := k.wrapper(rest[:saltSize]).Open(nil, zeroNonce, rest[saltSize:saltSize+keySize+tagSize], where)
	if err != nil {
		return Key{}, nil, ErrForged
	}
	return k, data, nil
}

// Rewrap is the value sealed with the current key, and whether that is another
// one than stored. A value in clear is sealed; of a sealed one only the data key
// is encrypted again.
func (r *Ring) Rewrap(stored []byte, at Place) ([]byte, bool, error) {
	if len(stored) == 0 {
		return stored, false, nil
	}
	if !Sealed(stored) {
		return r.Seal(stored, at), true, nil
	}
	current := r.Current()
	if KeyOf(stored) == current.id {
		return stored, false, nil
	}
	where := at.bytes()
	_, data, err := r.unwrap(stored, where)
	if err != nil {
		return nil, false, fmt.Errorf("%s of %s %s: %w", at.Column, at.Table, at.Row, err)
	}
	out := current.header(make([]byte, 0, len(stored)), data, where)
	return append(out, stored[headerSize:]...), true, nil
}

// Sealed reports whether a stored value is encrypted.
func Sealed(stored []byte) bool {
	return len(stored) >= len(magic) && string(stored[:len(magic)]) == magic
}

// KeyOf is the id of the master key of a sealed value; "" for a value in clear.
func KeyOf(stored []byte) ID {
	if !Sealed(stored) || len(stored) < len(magic)+idSize {
		return ""
	}
	return ID(hex.EncodeToString(stored[len(magic) : len(magic)+idSize]))
}

// Text is a sealed value as text, for columns that hold no bytes. A value in
// clear stays as it is.
func Text(stored []byte) string {
	if !Sealed(stored) {
		return string(stored)
	}
	return textMagic + base64.RawStdEncoding.EncodeToString(stored[len(magic):])
}

// FromText is what [Text] was given.
func FromText(text string) []byte {
	rest, ok := strings.CutPrefix(text, textMagic)
	if !ok {
		return []byte(text)
	}
	b, err := base64.RawStdEncoding.DecodeString(rest)
	if err != nil {
		return []byte(text)
	}
	return append([]byte(magic), b...)
}
