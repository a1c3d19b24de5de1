package requests

import (
	"context"
	"strings"
	"time"
)

// Logs of requests are bounded for each user and in all, and leave room on the
// server's disk. A line that there is no room for is left out; the request goes on.

// room takes bytes of logs of a user's requests.
func (e *Engine) room(user string) func(n int64) error {
	return func(n int64) error { return e.books.Take(user, n, e.o.LogLimits) }
}

// countLimit bounds how long the owners of logs are asked for.
const countLimit = 20 * time.Second

// countLogs is how many bytes of logs there are, by user; nil: that cannot be found
// out now. Logs of requests that are not recorded yet are nobody's.
func (e *Engine) countLogs() map[string]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), countLimit)
	defer cancel()
	logs, err := e.logs.List("*.log")
	if err == nil && len(logs) > 0 {
		var users map[string]string
		if users, err = e.store.Requests().Users(ctx); err == nil {
			by := map[string]int64{}
			for name, size := range logs {
				by[users[strings.TrimSuffix(name, ".log")]] += size
			}
			return by
		}
	}
	if err != nil {
		e.log.WarnContext(ctx, "logs of requests are not counted", "err", err)
		return nil
	}
	return map[string]int64{}
}
