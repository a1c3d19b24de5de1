package gcs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/memory"
	"github.com/skypilot-go/sky/internal/storage/rest"
	"github.com/skypilot-go/sky/internal/storage/storetest"
)

func open(t *testing.T, server http.Handler, name string) *Bucket {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return openAt(t, s.URL, name)
}

func openAt(t *testing.T, endpoint, name string) *Bucket {
	t.Helper()
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	b, err := Open(t.Context(), storage.Location{Store: storage.GCS, Bucket: name, Region: "us-east-1"}, Options{
		Endpoint: endpoint, Project: "p", Transport: transport,
		Token: func(context.Context) (rest.Token, error) {
			return rest.Token{Value: "secret", Account: "me@example.com"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestContract(t *testing.T) {
	s := &memory.Store{MinPart: 1 << 10}
	server := httptest.NewServer(s.ServeGCS("secret"))
	t.Cleanup(server.Close)
	storetest.Run(t, storetest.Harness{
		Part:      1 << 10,
		New:       func(t *testing.T, name string) storage.Bucket { return openAt(t, server.URL, name) },
		Versioned: func(t *testing.T, b storage.Bucket) { s.KeepVersions(b.Location().Bucket) },
	})
}
