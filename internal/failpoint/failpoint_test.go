package failpoint

import (
	"context"
	"errors"
	"slices"
	"testing"
)

var errOver = errors.New("over")

func TestAProcessEndsBeforeAStepOrAfterItsEffect(t *testing.T) {
	for half, want := range []int{0, 1, 1, 2, 2} { // effects of two steps
		p := New(t.Context(), half, errOver)
		done := 0
		for range 2 {
			_ = p.Do("step", func() error { done++; return nil })
		}
		if done != want {
			t.Errorf("after %d half steps: %d effects, want %d", half, done, want)
		}
		if ended := half < 4; p.Dead() != ended {
			t.Errorf("after %d half steps: ended %v", half, p.Dead())
		}
	}
}

func TestADeadProcessDoesNothing(t *testing.T) {
	p := New(t.Context(), Endless, errOver)
	if v, err := Get(p, "ask", func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Fatal(v, err)
	}
	p.Kill()
	v, err := Get(p, "ask again", func() (int, error) { t.Error("it was asked"); return 7, nil })
	if v != 0 || !errors.Is(err, ErrDead) {
		t.Error(v, err)
	}
	if !errors.Is(context.Cause(p.Context()), errOver) {
		t.Error("its context goes on")
	}
	if got := p.Steps(); !slices.Equal(got, []string{"ask"}) {
		t.Error(got)
	}
}

func TestAHookIsCalledAtItsHalfStep(t *testing.T) {
	p := New(t.Context(), Endless, errOver)
	var seen []int
	p.At(1, func() { seen = append(seen, 1) })
	p.At(5, func() { t.Error("that many were not made") })
	_ = p.Do("step", func() error { seen = append(seen, 0); return nil })
	if !slices.Equal(seen, []int{0, 1}) {
		t.Error(seen)
	}
}
