//go:build stores

package stores

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/azure"
	"github.com/skypilot-go/sky/internal/storage/granted"
	"github.com/skypilot-go/sky/internal/storage/scoped"
)

// What nodes get for a container of an account whose key the server has is a signature, which
// lets them do what they are to do there, and nothing else.
func TestSignaturesOnAzurite(t *testing.T) {
	transport := storage.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	o := azurite(t, transport)
	open := func(container string) storage.Bucket {
		b, err := azure.Open(storage.Location{Store: storage.Azure, Account: "devstoreaccount1", Bucket: container}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		return b
	}
	server, others := open("mine"), open("others")
	for _, b := range []storage.Bucket{server, others} {
		if _, err := b.Put(t.Context(), "there", strings.NewReader("text"), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	m := &scoped.Maker{Transport: transport}
	node := func(u scoped.Use) (mine, theirs storage.Bucket) {
		g, err := m.Grant(t.Context(), server, u)
		if err != nil || g.Key != "" || g.SAS == "" {
			t.Fatalf("the grant %v has a key: %v; %v", g, g.Key != "", err)
		}
		if mine, err = granted.Open(t.Context(), granted.Hold(g), transport); err != nil {
			t.Fatal(err)
		}
		g.Bucket = "others"
		if theirs, err = granted.Open(t.Context(), granted.Hold(g), transport); err != nil {
			t.Fatal(err)
		}
		return mine, theirs
	}
	read := func(b storage.Bucket) error {
		r, err := b.Get(t.Context(), "there", storage.GetOptions{})
		if err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		_, denied := errors.AsType[*storage.DeniedError](err)
		_, unknown := errors.AsType[*storage.CredentialsError](err)
		if !denied && !unknown {
			t.Errorf("%s: %v", what, err)
		}
	}
	put := func(b storage.Bucket, key string) error {
		_, err := b.Put(t.Context(), key, strings.NewReader("text"), storage.PutOptions{Metadata: map[string]string{"k": "v"}})
		return err
	}

	reader, elsewhere := node(scoped.Use{ReadOnly: true})
	if page, err := reader.List(t.Context(), storage.ListOptions{}); err != nil || len(page.Objects) != 1 {
		t.Errorf("a list: %v, %v", page.Objects, err)
	}
	if err := read(reader); err != nil {
		t.Error(err)
	}
	refused("writing to read", put(reader, "new"))
	refused("deleting to read", reader.Remove(t.Context(), []storage.ID{{Key: "there"}}))
	refused("reading another container", read(elsewhere))

	writer, elsewhere := node(scoped.Use{})
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must("writing", put(writer, "a"))
	must("writing", put(writer, "b"))
	_, err := writer.Copy(t.Context(), "c", storage.Source{Bucket: writer, ID: storage.ID{Key: "a"}}, storage.PutOptions{})
	must("copying", err)
	up, err := writer.Start(t.Context(), "parts", storage.PutOptions{})
	must("beginning", err)
	part, err := writer.PutPart(t.Context(), up, 1, bytes.NewReader([]byte("a part")))
	must("a part", err)
	_, err = writer.Complete(t.Context(), up, []storage.Part{part}, storage.PutOptions{})
	must("completing", err)
	must("deleting one", writer.Remove(t.Context(), []storage.ID{{Key: "a"}}))
	must("deleting many", writer.Remove(t.Context(), []storage.ID{{Key: "b"}, {Key: "c"}, {Key: "parts"}}))
	must("reading", read(writer))
	refused("writing another container", put(elsewhere, "new"))
}
