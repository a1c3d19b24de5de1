package azureauth

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/pkcs12"
)

// certificate is that of a service principal, with its key.
type certificate struct {
	key   *rsa.PrivateKey
	chain [][]byte // its own comes first
}

// readCertificate reads PEM with a certificate and its key, or PKCS #12.
func readCertificate(text []byte, password string) (*certificate, error) {
	var blocks []*pem.Block
	if bytes.Contains(text, []byte("-----BEGIN")) {
		for rest := text; ; {
			var b *pem.Block
			if b, rest = pem.Decode(rest); b == nil {
				break
			}
			blocks = append(blocks, b)
		}
	} else {
		var err error
		if blocks, err = pkcs12.ToPEM(text, password); err != nil {
			return nil, fmt.Errorf("it is neither PEM nor PKCS #12 that can be read (AZURE_CLIENT_CERTIFICATE_PASSWORD is its password): %w", err)
		}
	}
	c := &certificate{}
	for _, b := range blocks {
		switch b.Type {
		case "CERTIFICATE":
			c.chain = append(c.chain, b.Bytes)
		case "PRIVATE KEY", "RSA PRIVATE KEY":
			key, err := readKey(b.Bytes)
			if err != nil {
				return nil, err
			}
			c.key = key
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("its key is encrypted, which only PKCS #12 may be; convert it with: openssl pkcs8 -topk8 -nocrypt")
		}
	}
	if c.key == nil || len(c.chain) == 0 {
		return nil, errors.New("it must hold a certificate and its private key")
	}
	// The certificate of the key comes first.
	for i, der := range c.chain {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("a certificate in it cannot be read: %w", err)
		}
		if c.key.PublicKey.Equal(parsed.PublicKey) {
			c.chain[0], c.chain[i] = c.chain[i], c.chain[0]
			return c, nil
		}
	}
	return nil, errors.New("no certificate in it belongs to its private key")
}

func readKey(der []byte) (*rsa.PrivateKey, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("its key cannot be read: %w", err)
	}
	key, ok := any.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("its key is not of RSA, as Microsoft Entra ID wants it")
	}
	return key, nil
}

// assertion is what proves that the caller has the key.
//
// https://learn.microsoft.com/entra/identity-platform/certificate-credentials
func (c *certificate) assertion(audience, client string, withChain bool, now time.Time) (string, error) {
	digest := sha256.Sum256(c.chain[0])
	header := map[string]any{"alg": "PS256", "typ": "JWT", "x5t#S256": base64.RawURLEncoding.EncodeToString(digest[:])}
	if withChain {
		header["x5c"] = c.chain // in base64, as JSON has bytes
	}
	claims := map[string]any{
		"aud": audience, "iss": client, "sub": client, "jti": rand.Text(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(10 * time.Minute).Unix(),
	}
	var signed string
	for _, part := range []any{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		if signed != "" {
			signed += "."
		}
		signed += base64.RawURLEncoding.EncodeToString(text)
	}
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPSS(rand.Reader, c.key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	if err != nil {
		return "", err
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
