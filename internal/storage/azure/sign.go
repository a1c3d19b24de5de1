package azure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// apiVersion is the version of the API that requests are written in.
const apiVersion = "2023-11-03"

// stamp gives a request what every request has. In a batch, the version of the whole
// counts: there the header is present without a value.
func stamp(r *http.Request) {
	if _, inBatch := r.Header["X-Ms-Version"]; !inBatch {
		r.Header.Set("X-Ms-Version", apiVersion)
	}
	r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
}

// sign signs a request with the account's key.
func sign(r *http.Request, account string, key []byte) {
	stamp(r)
	h := hmac.New(sha256.New, key)
	h.Write([]byte(toSign(r, account)))
	r.Header.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
}

// toSign is the text that is signed.
func toSign(r *http.Request, account string) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	lines := []string{r.Method}
	for _, name := range []string{"Content-Encoding", "Content-Language", "", "Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		if name == "" {
			lines = append(lines, length)
		} else {
			lines = append(lines, r.Header.Get(name))
		}
	}
	var own []string
	for name, values := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") && len(values) > 0 {
			own = append(own, name+":"+strings.TrimSpace(strings.Join(values, ",")))
		}
	}
	slices.Sort(own)
	lines = append(lines, own...)
	resource := "/" + account + r.URL.EscapedPath()
	query := map[string][]string{}
	for name, values := range r.URL.Query() {
		query[strings.ToLower(name)] = append(query[strings.ToLower(name)], values...)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		slices.Sort(query[name])
		resource += "\n" + name + ":" + strings.Join(query[name], ",")
	}
	return strings.Join(append(lines, resource), "\n")
}
