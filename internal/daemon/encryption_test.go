package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/envelope"
	"github.com/skypilot-go/sky/internal/state"
)

func TestWhichKeyIsCurrent(t *testing.T) {
	a, b := heldKey{envelope.NewKey(), "a"}, heldKey{envelope.NewKey(), "b"}
	rec := func(keys ...heldKey) (out []state.EncryptionKey) {
		for i, k := range keys {
			out = append(out, state.EncryptionKey{Number: len(keys) - i, ID: k.ID()})
		}
		return out
	}
	retired := rec(b, a)
	retired[1].RetiredAt = time.Now()
	for _, tt := range []struct {
		name   string
		record []state.EncryptionKey
		held   []heldKey
		wanted bool
		lost   envelope.ID
		want   keyChoice
	}{
		{"the first start makes one", nil, nil, false, "", keyChoice{add: true}},
		{"a key that is there is used", nil, []heldKey{a}, true, "", keyChoice{current: a.ID(), add: true}},
		{"the second start finds it", rec(a), []heldKey{a}, true, "", keyChoice{current: a.ID()}},
		{"a new key in the first place takes over", rec(a), []heldKey{b, a}, true, "", keyChoice{current: b.ID(), add: true}},
		{"a server that still has the order of before does not turn it back", rec(b, a), []heldKey{a, b}, true, "", keyChoice{current: b.ID()}},
		{"the file was lost", rec(a), nil, false, "", keyChoice{missing: rec(a)}},
		{"another server's key", rec(a), []heldKey{b}, true, "", keyChoice{missing: rec(a)}},
		{"the old key is needed until everything is encrypted anew", rec(b, a), []heldKey{b}, true, "", keyChoice{missing: rec(b, a)[1:]}},
		{"then it is not", retired, []heldKey{b}, true, "", keyChoice{current: b.ID()}},
		{"the loss is accepted", rec(a), nil, false, a.ID(), keyChoice{add: true}},
		{"the loss is accepted, and there is another key", rec(a), []heldKey{b}, true, a.ID(), keyChoice{current: b.ID(), add: true}},
		{"the loss of another key is not", rec(a), nil, false, b.ID(), keyChoice{missing: rec(a)}},
		{"a key management service makes one beside the file's", rec(a), []heldKey{a}, false, "", keyChoice{current: a.ID()}},
	} {
		got := chooseKey(tt.record, tt.held, tt.wanted, func(id envelope.ID) bool { return id == tt.lost })
		if got.current != tt.want.current || got.add != tt.want.add || len(got.missing) != len(tt.want.missing) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// keyed is a daemon with no more than a database and keys.
func keyed(t *testing.T, dir string, k keySources) *daemon {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(dir, "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	k.own = filepath.Join(dir, envelope.FileName)
	return &daemon{dir: dir, store: s, log: slog.New(slog.DiscardHandler), keySources: k}
}

func TestAServerWithoutTheKeyDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	if err := keyed(t, dir, keySources{}).unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, envelope.FileName)
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	err = keyed(t, dir, keySources{}).unlock(t.Context())
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), envAcceptLoss) {
		t.Fatalf("without the file: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("another file was made")
	}
	other := envelope.NewKey()
	if err := keyed(t, dir, keySources{keys: other.Text()}).unlock(t.Context()); err == nil || !strings.Contains(err.Error(), string(other.ID())) {
		t.Errorf("with another key: %v", err)
	}
	if err := os.WriteFile(file, kept, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := keyed(t, dir, keySources{}).unlock(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("readable for others: %v", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keyed(t, dir, keySources{}).unlock(t.Context()); err != nil {
		t.Errorf("with the file again: %v", err)
	}
}

func TestANewKeyInTheFileTakesOverAndTheOldOneCanGo(t *testing.T) {
	dir := t.TempDir()
	d := keyed(t, dir, keySources{})
	ctx := t.Context()
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.store.Settings().Set(ctx, "jwt_secret", []byte("hunter2")); err != nil {
		t.Fatal(err)
	}
	if err := d.sealOnce(ctx); err != nil {
		t.Fatal(err)
	}
	next := envelope.NewKey()
	if err := envelope.WriteFile(d.keySources.own, []envelope.Key{next, d.ring.Current()}); err != nil {
		t.Fatal(err)
	}
	if err := d.sealOnce(ctx); err != nil { // the server sees it without a restart
		t.Fatal(err)
	}
	if d.ring.Current().ID() != next.ID() {
		t.Error("the new key is not current")
	}
	if err := envelope.WriteFile(d.keySources.own, []envelope.Key{next}); err != nil {
		t.Fatal(err)
	}
	d = keyed(t, dir, keySources{})
	if err := d.unlock(ctx); err != nil {
		t.Fatalf("without the old key: %v", err)
	}
	if v, err := d.store.Settings().Get(ctx, "jwt_secret"); err != nil || string(v) != "hunter2" {
		t.Errorf("%s %v", v, err)
	}
}

func TestWithTheLossAcceptedTheServerStarts(t *testing.T) {
	dir := t.TempDir()
	d := keyed(t, dir, keySources{})
	ctx := t.Context()
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.store.Settings().Set(ctx, "jwt_secret", []byte("hunter2")); err != nil {
		t.Fatal(err)
	}
	lost := d.ring.Current().ID()
	if err := os.Remove(d.keySources.own); err != nil {
		t.Fatal(err)
	}
	d = keyed(t, dir, keySources{accepted: string(lost)})
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if v, err := d.store.Settings().Get(ctx, "jwt_secret"); err != state.ErrNotFound {
		t.Errorf("%s %v", v, err)
	}
	if err := d.sealOnce(ctx); err != nil {
		t.Fatal(err)
	}
	if err := keyed(t, dir, keySources{}).unlock(ctx); err != nil {
		t.Errorf("the next start, without the switch: %v", err)
	}
}

// The file was put back as it was before the key was changed: what is in it opens
// nothing that is needed, and a third key takes over.
func TestWithTheLossAcceptedAnOlderFileGetsANewKey(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := keyed(t, dir, keySources{})
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	first := d.ring.Current()
	second, _, err := envelope.AddToFile(ctx, d.keySources.own)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first key is not needed any more then
		if err := d.sealOnce(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := envelope.WriteFile(d.keySources.own, []envelope.Key{first}); err != nil {
		t.Fatal(err)
	}
	if err := keyed(t, dir, keySources{}).unlock(ctx); err == nil || !strings.Contains(err.Error(), string(second.ID())) {
		t.Fatalf("without the current key: %v", err)
	}
	d = keyed(t, dir, keySources{accepted: string(second.ID())})
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.sealOnce(ctx); err != nil {
		t.Fatal(err)
	}
	keys, err := envelope.ReadFile(d.keySources.own, false)
	if err != nil || len(keys) != 2 || keys[0].ID() == first.ID() || keys[1].ID() != first.ID() {
		t.Errorf("%v %v", keys, err)
	}
	if err := keyed(t, dir, keySources{}).unlock(ctx); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// Servers of one database get a new key behind the others first: each can open what
// is sealed with it before any of them seals with it.
func TestAKeyThatIsNotFirstYetOpensAlready(t *testing.T) {
	dir := t.TempDir()
	d := keyed(t, dir, keySources{})
	ctx := t.Context()
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	first, next := d.ring.Current(), envelope.NewKey()
	if err := envelope.WriteFile(d.keySources.own, []envelope.Key{first, next}); err != nil {
		t.Fatal(err)
	}
	if err := d.sealOnce(ctx); err != nil {
		t.Fatal(err)
	}
	at := envelope.Place{Table: "t", Row: "r", Column: "c"}
	if plain, err := d.ring.Open(envelope.NewRing(next).Seal([]byte("x"), at), at); err != nil || string(plain) != "x" {
		t.Errorf("%q %v", plain, err)
	}
	if d.ring.Current().ID() != first.ID() {
		t.Error("it is current already")
	}
}

func TestWhatToDoAboutAMissingKeyDependsOnWhereItWas(t *testing.T) {
	id := envelope.NewKey().ID()
	for source, want := range map[string]string{
		"/home/sky/.sky/api_server/encryption.key on web1": "copy that file",
		"the variable " + envKey:                           "set " + envKey,
		"the key management service":                       "set " + envKMS,
	} {
		k := state.EncryptionKey{ID: id, Source: source}
		if strings.Contains(source, "service") {
			k.Wrapped = []byte("x")
		}
		err := &MissingKeyError{Missing: []state.EncryptionKey{k}, Own: "/own"}
		for _, text := range []string{want, source, string(id), envAcceptLoss + "=" + string(id)} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q is missing in:\n%v", text, err)
			}
		}
		if !strings.HasPrefix(source, "/") && strings.Contains(err.Error(), "that file") {
			t.Errorf("there is no file to copy:\n%v", err)
		}
	}
}

func TestKeysOfAKeyManagementServiceStandWrappedInTheDatabase(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "kms")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ -e "+dir+"/away ] && exit 1\necho $1 >> "+dir+"/calls\nbase64 -d | tr '\\000-\\377' '\\200-\\377\\000-\\177' | base64\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	d := keyed(t, dir, keySources{kms: script})
	if err := d.unlock(ctx); err != nil {
		t.Fatal(err)
	}
	first := d.ring.Current().ID()
	if _, err := os.Stat(d.keySources.own); err == nil {
		t.Error("a key file was made")
	}
	d = keyed(t, dir, keySources{kms: script})
	if err := d.unlock(ctx); err != nil || d.ring.Current().ID() != first {
		t.Fatalf("%v %v", d.ring, err)
	}
	called, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.sealOnce(ctx); err != nil {
		t.Error(err)
	}
	if again, _ := os.ReadFile(filepath.Join(dir, "calls")); string(again) != string(called) {
		t.Errorf("the service is asked for a key that the server has: %q after %q", again, called)
	}
	marker := filepath.Join(dir, envelope.RotateMarker)
	for _, file := range []string{marker, filepath.Join(dir, "away")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.sealOnce(ctx); err == nil {
		t.Error("a new key without the service")
	}
	if err := os.Remove(filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := d.sealOnce(ctx); err != nil || d.ring.Current().ID() == first {
		t.Errorf("no new key when asked, the service being back: %v", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a new key is still asked for")
	}
	if err := keyed(t, dir, keySources{}).unlock(ctx); err == nil {
		t.Error("it starts without the service")
	}
}
