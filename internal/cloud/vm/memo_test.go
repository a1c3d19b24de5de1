package vm

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A look-up counts for ten minutes, for the credentials that it was made with.
func TestMemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, changes := 0, 0
		m := Memo{Changed: func() { changes++ }}
		look := func() (int, error) { looks++; return looks, nil }
		want := func(stamp string, want int) {
			t.Helper()
			if got, err := Remember(&m, stamp, "things", look); got != want || err != nil {
				t.Errorf("%d, %v; want %d", got, err, want)
			}
		}
		if _, err := Remember(&m, "a", "things", func() (int, error) { return 7, errors.New("no") }); err == nil {
			t.Error("no error")
		}
		want("a", 1)
		time.Sleep(9 * time.Minute)
		want("a", 1)
		time.Sleep(2 * time.Minute)
		want("a", 2)
		m.Forget("things")
		want("a", 3)
		want("b", 4)
		want("a", 5)
		if changes != 3 {
			t.Errorf("the credentials changed %d times", changes)
		}
	})
}
