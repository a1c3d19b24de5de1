package s3

import (
	"net/http/httptest"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/storage/storetest"
)

// TestContract is run with the API in this process; test/stores has servers of
// others.
func TestContract(t *testing.T) {
	s := &memory.Store{MinPart: 1 << 10}
	server := httptest.NewServer(s.ServeS3("AKIAEXAMPLE"))
	t.Cleanup(server.Close)
	for _, m := range family {
		if m.create == createNever {
			continue
		}
		t.Run(string(m.store), func(t *testing.T) {
			h := storetest.Harness{
				Part: 1 << 10,
				New: func(t *testing.T, name string) storage.Bucket {
					return open(t, storage.Location{Store: m.store, Bucket: name, Region: "us-east-1"}, fixedOptions(server.URL))
				},
			}
			if m.lacks&noVersions == 0 {
				h.Versioned = func(t *testing.T, b storage.Bucket) { s.KeepVersions(b.Location().Bucket) }
			}
			storetest.Run(t, h)
		})
	}
}
