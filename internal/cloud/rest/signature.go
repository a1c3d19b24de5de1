package rest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// RSAKey reads the PEM file of a private key.
func RSAKey(path string, text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM file", path)
	}
	if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
		return nil, fmt.Errorf("%s has a pass phrase; sky needs a key without one", path)
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if k, ok := key.(*rsa.PrivateKey); ok && err == nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s holds no private RSA key", path)
}

// HTTPSignature signs calls by RSA as of the draft "Signing HTTP Messages" (cavage), with the
// date, the target, the host and what is sent; for [Sign].
func HTTPSignature(keyID string, key *rsa.PrivateKey) func(r *http.Request, body []byte) error {
	return func(r *http.Request, body []byte) error {
		r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		names := []string{"date", "(request-target)", "host"}
		lines := []string{"date: " + r.Header.Get("Date"), "(request-target): " + strings.ToLower(r.Method) + " " + r.URL.RequestURI(), "host: " + r.Host}
		if r.Method == http.MethodPost || r.Method == http.MethodPut {
			sum := sha256.Sum256(body)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Content-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
			names = append(names, "content-length", "content-type", "x-content-sha256")
			lines = append(lines, fmt.Sprint("content-length: ", len(body)), "content-type: application/json", "x-content-sha256: "+r.Header.Get("X-Content-Sha256"))
		}
		sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", fmt.Sprintf(`Signature version="1",keyId="%s",algorithm="rsa-sha256",headers="%s",signature="%s"`,
			keyID, strings.Join(names, " "), base64.StdEncoding.EncodeToString(signature)))
		return nil
	}
}

// DataPages are all things of a list of which every page has some in "data" and, by the name
// next, the cursor of the next page, for the parameter of the same name.
func DataPages[T any](ctx context.Context, c *Client, path, next string, query url.Values) ([]T, error) {
	return FieldPages[T](ctx, c, path, "data", next, next, query)
}

// FieldPages are all things of a list of which every page has some in a field and, by the name
// next, in which dots lead into objects, the cursor of the next page, for a parameter: it, or the
// URL of that page, which has the parameter.
func FieldPages[T any](ctx context.Context, c *Client, path, field, next, parameter string, query url.Values) ([]T, error) {
	return All(ctx, func(ctx context.Context, token string) (items []T, cursor string, err error) {
		q := maps.Clone(query)
		if token != "" {
			q.Set(parameter, token)
		}
		page, err := Send[map[string]json.RawMessage](ctx, c, Call{Method: "GET", Path: path, Query: q})
		if err == nil {
			err = json.Unmarshal(page[field], &items)
		}
		if err == nil {
			cursor, err = cursorAt(page, next, parameter)
		}
		if err != nil && page != nil {
			err = c.lost(fmt.Errorf("the answer is not what the API promises: %w", err))
		}
		return items, cursor, err
	})
}

func cursorAt(page map[string]json.RawMessage, path, parameter string) (cursor string, err error) {
	name, within, deeper := strings.Cut(path, ".")
	if at := page[name]; at != nil && deeper {
		var in map[string]json.RawMessage
		if err := json.Unmarshal(at, &in); err != nil {
			return "", err
		}
		return cursorAt(in, within, parameter)
	} else if at != nil {
		err = json.Unmarshal(at, &cursor)
	}
	if strings.Contains(cursor, "://") {
		next, err := url.Parse(cursor)
		if err != nil {
			return "", err
		}
		cursor = next.Query().Get(parameter)
	}
	return cursor, err
}

// Pages are all things of a list of which every page names the next one in a header, for the
// parameter page.
func Pages[T any](ctx context.Context, c *Client, path string, query url.Values, header string) ([]T, error) {
	return All(ctx, func(ctx context.Context, token string) ([]T, string, error) {
		q := maps.Clone(query)
		if q == nil {
			q = url.Values{}
		}
		if token != "" {
			q.Set("page", token)
		}
		var got Reply
		page, err := Send[[]T](ctx, c, Call{Method: "GET", Path: path, Query: q, Reply: &got})
		return page, got.Header.Get(header), err
	})
}
