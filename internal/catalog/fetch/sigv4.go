package fetch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// AWSKeys are the credentials that sign requests to AWS.
type AWSKeys struct{ AccessKey, SecretKey, SessionToken string }

// sign adds the headers of AWS Signature Version 4 to a request with the given
// body. The request's query must be empty or already in canonical form.
func (k AWSKeys) sign(req *http.Request, body []byte, service, region string, now time.Time) {
	stamp, day := now.UTC().Format("20060102T150405Z"), now.UTC().Format("20060102")
	req.Header.Set("X-Amz-Date", stamp)
	signed := []string{"content-type", "host", "x-amz-date"}
	if k.SessionToken != "" {
		req.Header.Set("X-Amz-Security-Token", k.SessionToken)
		signed = append(signed, "x-amz-security-token")
	}
	var canonical strings.Builder
	path := req.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	canonical.WriteString(req.Method + "\n" + path + "\n" + req.URL.RawQuery + "\n")
	for _, name := range signed {
		value := req.Header.Get(name)
		if name == "host" {
			value = req.URL.Host
		}
		canonical.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	names := strings.Join(signed, ";")
	canonical.WriteString("\n" + names + "\n" + hexSum(body))
	scope := day + "/" + region + "/" + service + "/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hexSum([]byte(canonical.String()))
	key := []byte("AWS4" + k.SecretKey)
	for _, part := range []string{day, region, service, "aws4_request"} {
		key = mac(key, part)
	}
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.AccessKey+"/"+scope+", SignedHeaders="+names+", Signature="+hex.EncodeToString(mac(key, text)))
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
