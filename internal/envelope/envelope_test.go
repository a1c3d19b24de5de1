package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var here = Place{"requests", "r1", "body"}

func TestSealedValuesOpenWhereTheyStand(t *testing.T) {
	r := NewRing(NewKey())
	for _, plain := range []string{"", "hunter2", strings.Repeat("x", 1<<16)} {
		stored := r.Seal([]byte(plain), here)
		if plain != "" && bytes.Contains(stored, []byte(plain)) || !Sealed(stored) || KeyOf(stored) != r.Current().ID() {
			t.Errorf("%.80q is not sealed", stored)
		}
		if got, err := r.Open(stored, here); err != nil || string(got) != plain {
			t.Errorf("%.20q %v", got, err)
		}
		if got, err := r.Open(FromText(Text(stored)), here); err != nil || string(got) != plain {
			t.Errorf("as text: %.20q %v", got, err)
		}
	}
	if a, b := r.Seal([]byte("x"), here), r.Seal([]byte("x"), here); bytes.Equal(a, b) {
		t.Error("the same value is sealed alike twice")
	}
	if got, err := r.Open([]byte(`{"a":1}`), here); err != nil || string(got) != `{"a":1}` {
		t.Errorf("a value in clear: %s %v", got, err)
	}
}

func TestMovedAndChangedValuesAreRefused(t *testing.T) {
	r := NewRing(NewKey())
	stored := r.Seal([]byte("hunter2"), here)
	for _, at := range []Place{{"requests", "r2", "body"}, {"requests", "r1", "state"}, {"clusters", "r1", "body"}, {"requestsr", "1", "body"}} {
		if _, err := r.Open(stored, at); !errors.Is(err, ErrForged) {
			t.Errorf("%v: %v", at, err)
		}
	}
	for i := len(magic) + idSize; i < len(stored); i++ {
		bad := bytes.Clone(stored)
		bad[i] ^= 1
		if _, err := r.Open(bad, here); !errors.Is(err, ErrForged) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if i > len(magic) {
			if _, err := r.Open(stored[:i], here); err == nil {
				t.Fatalf("cut after %d bytes", i)
			}
		}
	}
}

func TestAnotherKeyIsNamed(t *testing.T) {
	a := NewKey()
	stored := NewRing(a).Seal([]byte("hunter2"), here)
	_, err := NewRing(NewKey()).Open(stored, here)
	if e, ok := errors.AsType[*UnknownKeyError](err); !ok || e.ID != a.ID() {
		t.Errorf("error is %v", err)
	}
}

func TestRewrapEncryptsTheDataKeyOnly(t *testing.T) {
	r := NewRing(NewKey())
	stored := r.Seal([]byte("hunter2"), here)
	if _, differs, err := r.Rewrap(stored, here); differs || err != nil {
		t.Error(differs, err)
	}
	next := NewKey()
	r.Use(next)
	fresh, differs, err := r.Rewrap(stored, here)
	if err != nil || !differs || !bytes.Equal(fresh[headerSize:], stored[headerSize:]) {
		t.Fatalf("%v %v", differs, err)
	}
	if got, err := NewRing(next).Open(fresh, here); err != nil || string(got) != "hunter2" {
		t.Errorf("%s %v", got, err)
	}
	if clear, differs, _ := r.Rewrap([]byte("hunter2"), here); !differs || !Sealed(clear) {
		t.Error("a value in clear stays so")
	}
}

func TestKeysDoNotShowThemselves(t *testing.T) {
	k := NewKey()
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, k)} {
		if strings.Contains(s, k.Text()) || strings.Contains(s, string(k.raw[:])) {
			t.Error(s)
		}
	}
	again, err := ParseKey(k.Text())
	if err != nil || again.ID() != k.ID() {
		t.Error(again, err)
	}
}

func TestTheKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server", FileName)
	if _, err := ReadFile(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	k, err := CreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateFile(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made again: %v", err)
	}
	next := NewKey()
	if err := WriteFile(path, []Key{next, k}); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadFile(path, false)
	if err != nil || len(keys) != 2 || keys[0].ID() != next.ID() || keys[1].ID() != k.ID() {
		t.Errorf("%v %v", keys, err)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 1 {
		t.Error(entries)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, tt := range []struct {
		mode  fs.FileMode
		given bool
		ok    bool
	}{{0o600, false, true}, {0o400, false, true}, {0o640, false, false}, {0o604, false, false}, {0o440, true, true}, {0o644, true, false}, {0o660, true, false}} {
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path, tt.given); (err == nil) != tt.ok {
			t.Errorf("mode %o, given %v: %v", tt.mode, tt.given, err)
		}
	}
}

func TestAKeyManagementServiceByCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command of this test is a shell script")
	}
	script := filepath.Join(t.TempDir(), "kms")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nread -r in\n[ \"$1\" = \"$SKY_KMS_OPERATION\" ] || exit 3\necho \"$in\" | base64 -d | tr '\\000-\\377' '\\200-\\377\\000-\\177' | base64\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	kms, k := KMS{Command: script}, NewKey()
	wrapped, err := kms.Wrap(t.Context(), k)
	if err != nil || bytes.Contains(wrapped, k.raw[:]) {
		t.Fatal(wrapped, err)
	}
	if back, err := kms.Unwrap(t.Context(), wrapped); err != nil || back.ID() != k.ID() {
		t.Error(back, err)
	}
	if _, err := (KMS{Command: "echo no access >&2; false"}).Wrap(t.Context(), k); err == nil || !strings.Contains(err.Error(), "no access") {
		t.Error(err)
	}
}

func BenchmarkSealAndOpen(b *testing.B) {
	r := NewRing(NewKey())
	plain := bytes.Repeat([]byte("x"), 4096)
	for b.Loop() {
		if _, err := r.Open(r.Seal(plain, here), here); err != nil {
			b.Fatal(err)
		}
	}
}

func TestOfManyWhoMakeTheFileOneDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", FileName)
	made := make(chan Key, 20)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if k, err := CreateFile(path); err == nil {
				made <- k
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(made)
	keys, err := ReadFile(path, false)
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v %v", keys, err)
	}
	for k := range made {
		if k.ID() != keys[0].ID() {
			t.Errorf("%v was made, and %v is in the file", k, keys[0])
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestARingFollowsAnother(t *testing.T) {
	a, b, c := NewKey(), NewKey(), NewKey()
	r := NewRing(a)
	r.Follow(NewRing(b, a, c))
	if r.Current().ID() != b.ID() {
		t.Errorf("current is %v", r.Current())
	}
	for _, k := range []Key{a, b, c} {
		if _, ok := r.Key(k.ID()); !ok {
			t.Errorf("%v is missing", k)
		}
	}
}
