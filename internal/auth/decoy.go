package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// decoys are hashes that passwords of unknown users are compared with, so that
// the time an answer takes does not tell who is known. They are real users' ones,
// for imported hashes cost more or less than ours: a name always gets the same
// hash, and names get them as often as users have hashes of that cost.
type decoys struct {
	mu     sync.Mutex
	key    []byte
	hashes []string
	read   time.Time
}

// decoysKept is how long the list is used.
const decoysKept = time.Minute

// decoy is for installations without passwords.
var decoy = "$2a$10$" + strings.Repeat("u", 53)

// of is the decoy of a name.
func (d *decoys) of(ctx context.Context, store *state.Store, name string, now time.Time) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.key == nil {
		d.key = random(32)
	}
	if d.read.IsZero() || now.Sub(d.read) >= decoysKept {
		list, err := store.Users().Credentials(ctx)
		if err != nil {
			return "", err
		}
		d.read, d.hashes = now, d.hashes[:0]
		for _, c := range list {
			d.hashes = append(d.hashes, c.Hash)
		}
	}
	// The largest of all: it stays the same while others come and go.
	best, largest := decoy, ""
	for _, h := range d.hashes {
		mac := hmac.New(sha256.New, d.key)
		mac.Write([]byte(name))
		mac.Write([]byte{0})
		mac.Write([]byte(h))
		if sum := string(mac.Sum(nil)); sum > largest {
			best, largest = h, sum
		}
	}
	return best, nil
}
