package auth

import (
	"testing"
	"time"
)

// What was signed for one purpose is good for no other.
func TestATokenOfAnotherKindIsRefused(t *testing.T) {
	s, now := &signer{secret: []byte("secret")}, time.Unix(1e9, 0)
	kinds := []string{kindAccount, kindSession}
	for _, made := range kinds {
		text, err := s.sign(claims{At: now.Unix(), User: "ada", Kind: made})
		if err != nil {
			t.Fatal(err)
		}
		for _, asked := range kinds {
			if _, err := s.parse(text, asked, now); (err == nil) != (asked == made) {
				t.Errorf("made as %s, asked as %s: %v", made, asked, err)
			}
		}
		if _, err := (&signer{secret: []byte("other")}).parse(text, made, now); err == nil {
			t.Error("another secret's signature was taken")
		}
	}
}
