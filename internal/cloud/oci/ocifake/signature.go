package ocifake

import (
	"cmp"
	"crypto"
	"crypto/md5"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// Config is what ~/.oci/config holds, and KeyFile the key that it names at path.
func Config(path string) (config string, keyFile []byte) {
	public, _ := x509.MarshalPKIXPublicKey(&key().PublicKey)
	sum := md5.Sum(public)
	print := strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":")
	private, _ := x509.MarshalPKCS8PrivateKey(key())
	config = fmt.Sprintf("[DEFAULT]\nuser=%s\nfingerprint=%s\ntenancy=%s\nregion=us-phoenix-1\nkey_file=%s\n", User, print, Tenancy, path)
	return config, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// signed reports whether a call carries a good signature of what it says that it signs,
// which has to be enough.
func signed(r *http.Request) bool {
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "Signature "), ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[strings.TrimSpace(name)] = strings.Trim(value, `"`)
	}
	headers := strings.Fields(fields["headers"])
	var lines []string
	for _, h := range headers {
		value := r.Header.Get(h)
		switch h {
		case "(request-target)":
			value = strings.ToLower(r.Method) + " " + r.URL.RequestURI()
		case "host":
			value = cmp.Or(r.Host, r.URL.Host)
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		lines = append(lines, h+": "+value)
	}
	needs := []string{"date", "(request-target)", "host"}
	if r.Method == "POST" || r.Method == "PUT" {
		needs = append(needs, "content-length", "content-type", "x-content-sha256")
	}
	for _, n := range needs {
		if !slices.Contains(headers, n) && (n != "date" || !slices.Contains(headers, "x-date")) {
			return false
		}
	}
	config, _ := Config("")
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	signature, _ := base64.StdEncoding.DecodeString(fields["signature"])
	id := strings.Split(fields["keyId"], "/")
	return len(id) == 3 && id[0] == Tenancy && id[1] == User && strings.Contains(config, id[2]) && rsa.VerifyPKCS1v15(&key().PublicKey, crypto.SHA256, sum[:], signature) == nil
}
