package server

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

func TestSizesOfTheServersFiles(t *testing.T) {
	env := newTestEnv(t)
	first := read[api.Sizes](t, env.call(get, "/api/sizes", ""))
	if first.Database+first.WAL == 0 || first.Uploads != 0 || first.Logs != 0 || first.ServerLog != 0 {
		t.Errorf("of a new server: %+v", first)
	}
	env.file(BlobDir("ab12", testBlob)+"/x", strings.Repeat("x", 1000))
	env.file(LogsDir("ab12")+"/job/run.log", strings.Repeat("x", 300))
	env.file(".sky/api_server/request_logs/a.log", strings.Repeat("x", 20))
	env.file(".sky/api_server/jobs/1/run.log", strings.Repeat("x", 4))
	env.file(serverLog, strings.Repeat("x", 7))
	if again := read[api.Sizes](t, env.call(get, "/api/sizes", "")); again != first {
		t.Errorf("looked at twice in %v: %+v", sizesKept, again)
	}
	env.server.room.at = time.Now().Add(-sizesKept)
	got := read[api.Sizes](t, env.call(get, "/api/sizes", ""))
	if got.Uploads != 1000 || got.Logs != 324 || got.ServerLog != 7 {
		t.Errorf("%+v", got)
	}
}
