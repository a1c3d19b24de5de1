package diskspace

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func by(err error) int {
	if e, ok := errors.AsType[*NoRoomError](err); ok {
		return e.By
	}
	return -1
}

func TestLedgerKeepsItsLimits(t *testing.T) {
	dir := t.TempDir()
	left, err := Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		n      int64
		limits Limits
		want   int
	}{
		{"all of a user's", 4, Limits{User: 10, All: 100, KeepFree: 1}, -1},
		{"more than a user's", 5, Limits{User: 10, All: 100, KeepFree: 1}, ByUser},
		{"all of everybody's", 4, Limits{User: 100, All: 13, KeepFree: 1}, -1},
		{"more than everybody's", 5, Limits{User: 100, All: 13, KeepFree: 1}, ByAll},
		{"more than stays free", 1, Limits{User: 100, All: 100, KeepFree: left + 1<<40}, ByDisk},
		{"nothing where too little is free", 0, Limits{User: 100, All: 100, KeepFree: left + 1<<40}, ByDisk},
		{"no limits but the disk's size", 1, Limits{KeepFree: 1}, -1},
		{"more than a quarter of the disk", math.MaxInt64 / 8, Limits{KeepFree: 1}, ByUser},
	} {
		l := &Ledger{Dir: dir, Count: func() map[string]int64 { return map[string]int64{"a": 6, "b": 3} }}
		err := l.Take("a", c.n, c.limits)
		want := int64(6)
		if c.want == -1 {
			want += c.n
		}
		if by(err) != c.want || l.Used("a") != want || l.Used("b") != 3 {
			t.Errorf("%s: %v, %d are taken", c.name, err, l.Used("a"))
		}
	}
}

// What was removed is seen when there seems to be no room, but not each time.
func TestLedgerCountsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there, counts := int64(9), 0
		l := &Ledger{Dir: t.TempDir(), Count: func() map[string]int64 { counts++; return map[string]int64{"a": there} }}
		limits := Limits{User: 10, All: 10, KeepFree: 1}
		there = 10
		for range 5 {
			if err := l.Take("a", 1, limits); by(err) != ByUser || counts != 1 {
				t.Errorf("%v after %d counts", err, counts)
			}
		}
		there = 0
		time.Sleep(countAgain + time.Second)
		if err := l.Take("a", 1, limits); err != nil || counts != 2 {
			t.Errorf("%v after %d counts", err, counts)
		}
	})
}

// Where others write, too, a count holds for a while; one that fails changes nothing.
func TestALedgerOfManyWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := map[string]int64{"a": 5}
		l := &Ledger{Count: func() map[string]int64 { return there }, Again: time.Minute}
		limits := Limits{User: 10}
		take := func(want int) {
			t.Helper()
			if err := l.Take("a", 1, limits); by(err) != want {
				t.Error(err)
			}
		}
		take(-1)
		there = map[string]int64{"a": 10}
		take(-1) // not counted again yet
		time.Sleep(time.Minute + 1)
		take(ByUser)
		there = nil
		time.Sleep(time.Hour)
		take(ByUser)
		if used := l.Used("a"); used != 10 {
			t.Errorf("%d are taken", used)
		}
	})
}

func TestAShareGoesBack(t *testing.T) {
	l := &Ledger{Dir: t.TempDir(), Count: func() map[string]int64 { return nil }}
	s := &Share{Ledger: l, User: "a", Limits: Limits{User: 10, All: 10, KeepFree: 1}}
	var out bytes.Buffer
	w := s.Writer(&out)
	w.Write([]byte("12345678"))
	if n, err := w.Write([]byte("9ab")); n != 0 || by(err) != ByUser || out.Len() != 8 || l.Used("a") != 8 {
		t.Errorf("%d, %v; %d are written, %d taken", n, err, out.Len(), l.Used("a"))
	}
	s.Return()
	s.Return()
	if used := l.Used("a"); used != 0 {
		t.Errorf("%d are taken", used)
	}
	var none *Share
	if _, err := none.Writer(&out).Write([]byte("x")); err != nil {
		t.Error(err)
	}
	none.Return()
}

func TestKeepFree(t *testing.T) {
	for size, want := range map[int64]int64{40 << 20: 24 << 20, 200 << 20: 50 << 20, 1 << 40: 512 << 20} {
		if got := KeepFree(size); got != want {
			t.Errorf("of %s: %s", Bytes(size), Bytes(got))
		}
	}
	if by(Leaves(t.TempDir(), math.MaxInt64/2)) != ByDisk || Leaves(t.TempDir(), 0) != nil && by(Leaves(t.TempDir(), 0)) != ByDisk {
		t.Error("Leaves")
	}
}
