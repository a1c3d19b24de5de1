package cli

import (
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestSizesText(t *testing.T) {
	got := sizesText(api.Sizes{Database: 12 << 20, WAL: 3 << 20, Uploads: 1 << 20, Logs: 2 << 20, ServerLog: 1 << 20})
	one := sizesText(api.Sizes{Database: 12 << 20})
	if want := "On the server: database 12.6 MB (and its log 3.1 MB), uploads 1.0 MB, logs 2.1 MB, the server's own log 1.0 MB.\n"; got != want {
		t.Errorf("%q", got)
	}
	if want := "On the server: database 12.6 MB, uploads 0 B, logs 0 B, the server's own log 0 B.\n"; one != want {
		t.Errorf("%q", one)
	}
}
