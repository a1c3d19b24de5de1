package state

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

// oldFile is a database as an earlier sky made it, with users and what is left of
// many requests that are gone.
func oldFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sky.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"PRAGMA auto_vacuum = NONE", "CREATE TABLE old (x TEXT)"} {
		if _, err := db.Exec(step); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		if _, err := db.Exec("INSERT INTO old VALUES (?)", strings.Repeat("x", 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec("DELETE FROM old"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func autoVacuum(t *testing.T, path string) (mode int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("PRAGMA auto_vacuum").Scan(&mode); err != nil {
		t.Fatal(err)
	}
	return mode
}

func TestOldFilesGiveRoomBack(t *testing.T) {
	path := oldFile(t)
	before := sizeOf(t, path)
	for range 2 { // the second start finds it done
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Users().Touch(t.Context(), User{ID: "ab12", Name: "ada", Role: "user"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if mode := autoVacuum(t, path); mode != incremental {
			t.Errorf("auto_vacuum is %d", mode)
		}
		if after := sizeOf(t, path); after > before/4 {
			t.Errorf("the file has %d bytes of %d", after, before)
		}
	}
	// From then on what is deleted goes by itself.
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 120 {
		r := &Request{ID: strings.Repeat("a", i+1), Name: "sky.status", Status: api.RequestSucceeded, Schedule: api.ScheduleShort, UserID: "ab12", CreatedAt: s.Now(), FinishedAt: s.Now(),
			ReturnValue: []byte(`"` + strings.Repeat("x", 200<<10) + `"`)}
		if err := s.Requests().Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	if err := s.Requests().Delete(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // a checkpoint comes 2 s after the last change
		after := sizeOf(t, path)
		if after <= before/4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("long after 24 MB were deleted the file has %d bytes", after)
		}
	}
	if database, log, err := s.Size(t.Context()); err != nil || database != sizeOf(t, path) || log != sizeOf(t, path+"-wal") {
		t.Errorf("the store tells %d and %d bytes, %v", database, log, err)
	}
	if u, err := s.Users().Get(t.Context(), "ab12"); err != nil || u.Name != "ada" {
		t.Errorf("%+v, %v", u, err)
	}
}

// What is too large for a start is left as it is; its backup is not.
func TestLargeOldFiles(t *testing.T) {
	path := oldFile(t)
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	makeIncremental(t.Context(), db, path, 1<<20)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if mode := autoVacuum(t, path); mode != 0 {
		t.Errorf("auto_vacuum is %d", mode)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := path + ".copy"
	if err := SnapshotFile(t.Context(), path, to); err != nil {
		t.Fatal(err)
	}
	if mode := autoVacuum(t, to); mode != incremental {
		t.Errorf("auto_vacuum of the backup is %d", mode)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("a backup changed the file, %v", err)
	}
}
