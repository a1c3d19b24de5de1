package azure

import (
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
)

// Mounts mark a folder by a key that ends in one slash.
func TestWhichKeysTheStoreHas(t *testing.T) {
	b, err := Open(storage.Location{Store: storage.Azure, Account: "acct", Bucket: "c"}, Options{Key: "a2V5"})
	if err != nil {
		t.Fatal(err)
	}
	for key, good := range map[string]bool{
		"a": true, "a/b": true, "a/": true, "a/b/": true, ".a": true, "a.b": true, "ü": true,
		"": false, "a.": false, "a//": false, "a./b": false, "a./": false, `a\b`: false, "a\xff": false,
	} {
		if err := b.checkKey(key); (err == nil) != good {
			t.Errorf("%q: %v", key, err)
		}
	}
}
