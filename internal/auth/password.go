package auth

import (
	"crypto/sha1" //nolint:gosec // an accepted kind of old hashes
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/GehirnInc/crypt"
	"github.com/GehirnInc/crypt/apr1_crypt"
	"github.com/GehirnInc/crypt/sha256_crypt"
	"github.com/GehirnInc/crypt/sha512_crypt"
	"github.com/skypilot-go/sky/internal/lazyregexp"
	"golang.org/x/crypto/bcrypt"
)

// A kind of password hash: what it looks like, and whether a password fits.
type kind struct {
	form *lazyregexp.Regexp
	fits func(hash, password string) bool
}

var kinds = []kind{
	{lazyregexp.New(`^\$2[abxy]?\$\d\d\$[./0-9A-Za-z]{53}$`), func(hash, password string) bool {
		return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	}},
	{lazyregexp.New(`^\$5\$(rounds=\d{1,7}\$)?[^$:]{0,16}\$[./0-9A-Za-z]{43}$`), fitsCrypt(sha256_crypt.New)},
	{lazyregexp.New(`^\$6\$(rounds=\d{1,7}\$)?[^$:]{0,16}\$[./0-9A-Za-z]{86}$`), fitsCrypt(sha512_crypt.New)},
	{lazyregexp.New(`^\$apr1\$[^$:]{0,8}\$[./0-9A-Za-z]{22}$`), fitsCrypt(apr1_crypt.New)},
	{lazyregexp.New(`^\{SHA\}[+/0-9A-Za-z]{27}=$`), func(hash, password string) bool {
		sum := sha1.Sum([]byte(password)) //nolint:gosec // an accepted kind of old hashes
		return equal(hash, "{SHA}"+base64.StdEncoding.EncodeToString(sum[:]))
	}},
	{lazyregexp.New(`^[./0-9A-Za-z]{13}$`), func(hash, password string) bool {
		return equal(hash, desCrypt(password, hash[:2]))
	}},
}

func fitsCrypt(crypter func() crypt.Crypter) func(hash, password string) bool {
	return func(hash, password string) bool {
		settings := hash[:strings.LastIndexByte(hash, '$')] // the library takes what follows for salt
		got, err := crypter().Generate([]byte(password), []byte(settings))
		return err == nil && equal(hash, got)
	}
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// IsHash reports whether a text is a password hash of a kind that is accepted:
// bcrypt, SHA-256 crypt, SHA-512 crypt, Apache MD5, LDAP SHA-1, DES crypt.
func IsHash(text string) bool { return kindOf(text) != nil }

func kindOf(hash string) *kind {
	for i := range kinds {
		if kinds[i].form.MatchString(hash) {
			return &kinds[i]
		}
	}
	return nil
}

// fits reports whether a password belongs to a hash.
func fits(hash, password string) bool {
	k := kindOf(hash)
	return k != nil && k.fits(hash, password)
}

// HashPassword is what is kept of a new password.
func HashPassword(password string) (string, error) {
	if password == "" {
		return "", errors.New("the password is empty")
	}
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if errors.Is(err, bcrypt.ErrPasswordTooLong) {
		return "", errors.New("the password is longer than 72 bytes")
	}
	return string(h), err
}

// parseInitial splits NAME:HASH.
func parseInitial(s string) (name, hash string, err error) {
	name, hash, ok := strings.Cut(s, ":")
	if !ok || CheckName(name) != nil || !IsHash(hash) {
		return "", "", errors.New("SKYPILOT_INITIAL_BASIC_AUTH must be NAME:HASH, with a hash as htpasswd -nB writes it")
	}
	return name, hash, nil
}

// CheckName says what is wrong with the name of a user who logs in with a
// password.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the user's name is empty")
	case len(name) > 254:
		return errors.New("the user's name is longer than 254 bytes")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == ':' }):
		return fmt.Errorf("the user's name %q holds a colon or a control character", name)
	}
	return nil
}
