package auth

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

func TestKindsOfHashes(t *testing.T) {
	fresh, err := HashPassword("secret")
	if err != nil || !strings.HasPrefix(fresh, "$2") {
		t.Fatalf("a new hash is %q, %v", fresh, err)
	}
	// Made with crypt(3), openssl passwd and Python.
	for kind, hash := range map[string]string{
		"bcrypt":          fresh,
		"SHA-256 crypt":   "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
		"SHA-512, rounds": "$6$rounds=5001$saltsalt$eRo839fksshWoEHmHdX/7Uq.Pmen3XX2cfm6f4ywv/b24QbNOabWnbWVRMkFM1jdUtF8zMcSKIP9pdfsSNUqg1",
		"Apache MD5":      "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
		"LDAP SHA-1":      "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
		"DES crypt":       "abNANd1rDfiNc",
	} {
		if !IsHash(hash) || !fits(hash, "secret") || fits(hash, "Secret") || fits(hash, "") {
			t.Errorf("%s is not checked right", kind)
		}
	}
	for _, no := range []string{"", "secret", "$1$abc$def", "plain:text", "{SHA}xx", "$2a$10$short"} {
		if IsHash(no) || fits(no, no) || fits(no, "") {
			t.Errorf("%q counts as a hash", no)
		}
	}
	if err := bcrypt.CompareHashAndPassword([]byte(decoy), []byte("x")); !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		t.Errorf("the decoy takes no time: %v", err)
	}
	for _, bad := range []string{"", strings.Repeat("x", 73)} {
		if _, err := HashPassword(bad); err == nil {
			t.Errorf("a password of %d bytes was accepted", len(bad))
		}
	}
}

func TestDESCrypt(t *testing.T) {
	for _, c := range [][2]string{ // made with crypt(3)
		{"secret", "abNANd1rDfiNc"}, {"secret", "./17m29LFAflg"}, {"secret", "ZzU3r240Q6iws"}, {"secret", "9xfVMXbcoTt8."},
		{"", "abmF1QH4PEr.E"}, {"", "./Una9Fi.seRo"}, {"longpassword123", "abD6HAB6eqg.k"}, {"longpassword123", "ZzIyHEjAFZRko"},
		{"a", "abxxB7HlIeckU"}, {"a", "9xWu2XhNsg0eM"},
	} {
		if got := desCrypt(c[0], c[1][:2]); got != c[1] {
			t.Errorf("%q: %s, want %s", c[0], got, c[1])
		}
	}
}

func FuzzFits(f *testing.F) {
	f.Add("abNANd1rDfiNc", "secret")
	f.Add("$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/", "x")
	f.Add("$2a$04$", "x")
	f.Fuzz(func(t *testing.T, hash, password string) {
		if strings.HasPrefix(hash, "$2") || strings.Contains(hash, "rounds=") {
			t.Skip("slow on purpose")
		}
		if fits(hash, password) && !IsHash(hash) {
			t.Errorf("%q is no hash but fits", hash)
		}
	})
}
