//go:build linux

package harness

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A scan finds a secret in every form and place, and nothing where there is none.
func TestAScanFindsPlantedSecrets(t *testing.T) {
	const secret = "s3cret-that-nobody-has"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprintf(z, "a log with %s in it", secret)
	z.Close()
	for name, text := range map[string]string{
		"plain": "x" + secret + "y", "gzip": zipped.String(), "hexadecimal": fmt.Sprintf("%x", "ab"+secret),
		"base64 0": base64.StdEncoding.EncodeToString([]byte("abc" + secret + "zzz")),
		"base64 1": base64.StdEncoding.EncodeToString([]byte("abcd" + secret + "zzz")),
		"base64 2": base64.RawURLEncoding.EncodeToString([]byte("abcde" + secret)),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if leaks, err := Scan(map[string]string{"it": secret}, nil, dir); err != nil || len(leaks) == 0 {
			t.Errorf("%s: %v %v", name, leaks, err)
		}
		if leaks, err := Scan(map[string]string{"it": "another s3cret that is nowhere"}, nil, dir); err != nil || len(leaks) > 0 {
			t.Errorf("%s: %v %v", name, leaks, err)
		}
	}
}
