package catalog

import (
	"errors"
	"testing"
)

func TestMissing(t *testing.T) {
	// Nobody listens there.
	s := NewStore(StoreOptions{Dir: t.TempDir(), BaseURL: "http://127.0.0.1:1/a/long/path", MirrorURL: "http://127.0.0.1:1/mirror"})
	_, err := s.Tables(t.Context(), []string{"aws", "gcp", "lambda"})
	const refused = "127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"
	if got, want := Missing(err), "there is none for aws, gcp, lambda: "+refused; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err = s.Table(t.Context(), "aws")
	if got, want := err.Error(), "there is no price list for aws: "+refused; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if m, ok := errors.AsType[*MissingError](err); !ok || m.Cloud != "aws" {
		t.Errorf("%#v", err)
	}

	offline := NewStore(StoreOptions{Dir: "/prices", Offline: true})
	_, err = offline.Tables(t.Context(), []string{"aws", "gcp"})
	if got, want := Missing(errors.Join(err, errors.New("odd"))), "there is none for aws, gcp: nothing is fetched; put it at /prices/CLOUD/vms.csv; odd"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
