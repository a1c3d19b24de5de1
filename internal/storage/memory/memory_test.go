package memory

import (
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/storetest"
)

func TestContract(t *testing.T) {
	s := &Store{MinPart: 1 << 10}
	storetest.Run(t, storetest.Harness{
		New:       func(t *testing.T, name string) storage.Bucket { return s.Bucket(name) },
		Versioned: func(t *testing.T, b storage.Bucket) { s.KeepVersions(b.Location().Bucket) },
	})
}
