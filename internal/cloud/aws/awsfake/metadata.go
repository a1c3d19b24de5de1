package awsfake

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// noticeTime is how long before its end a spot machine is told about it.
const noticeTime = 2 * time.Minute

// Metadata is the metadata service of one instance, version 2: without a token
// nothing is said.
func (c *Cloud) Metadata(id string) http.Handler {
	const token = "a token of the fake"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/latest/api/token" {
			if r.Method != http.MethodPut || r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Write([]byte(token))
			return
		}
		if r.Header.Get("X-aws-ec2-metadata-token") != token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		c.mu.Lock()
		var end time.Time
		if i := c.find(id); i != nil {
			end = i.takenBack
		}
		c.mu.Unlock()
		if end.IsZero() || time.Until(end) > noticeTime || strings.TrimPrefix(r.URL.Path, "/latest/meta-data/") != "spot/instance-action" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		json.NewEncoder(w).Encode(map[string]string{"action": "terminate", "time": end.UTC().Format(time.RFC3339)})
	})
}
