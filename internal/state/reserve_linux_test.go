package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/diskspace/disktest"
)

// smallDisk mounts a file system of a few MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=12m,mode=700"); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestWritesFindRoomOnAFullDisk(t *testing.T) {
	dir := smallDisk(t)
	s, err := Open(t.Context(), filepath.Join(dir, "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := diskspace.OpenReserve(filepath.Join(dir, "reserve"), 4<<20)
	s.KeepReserve(r)
	if err := r.Fill(0); err != nil || r.Left() != 4<<20 {
		t.Fatal(err, r.Left())
	}
	full := filepath.Join(dir, "full")
	disktest.Fill(t, full)
	write := func(i int) error {
		_, err := s.Settings().SetIfAbsent(t.Context(), fmt.Sprint("key", i), []byte(strings.Repeat("x", 20_000)))
		return err
	}
	for i := range 30 {
		if err := write(i); err != nil {
			t.Fatalf("write %d on a full disk: %v", i, err)
		}
	}
	if r.Left() == 4<<20 {
		t.Error("nothing was taken from the reserve: the disk was not full")
	}
	i := 30
	for ; err == nil && i < 5000; i++ {
		disktest.Fill(t, full) // somebody goes on
		err = write(i)
	}
	if err == nil || !Full(err) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("without a reserve: %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if err := write(i); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := r.Fill(1 << 20); err != nil || r.Left() == 0 {
		t.Errorf("the reserve is not made again: %v, %d", err, r.Left())
	}
}
