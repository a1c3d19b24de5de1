package transfer

import (
	"context"
	"errors"
	"testing"
)

// The slot of a request that fails is free only when everybody can see the error.
func TestNothingBeginsAfterAnError(t *testing.T) {
	fail := errors.New("")
	for what, begin := range map[string]func(e *engine) (another func(f func() error) bool){
		"requests of a group": func(e *engine) func(func() error) bool {
			g := e.group()
			return func(f func() error) bool { return g.run(1, 1, func(context.Context) error { return f() }) }
		},
		"small files": func(e *engine) func(func() error) bool {
			return func(f func() error) bool { return e.small("x", 1, func(context.Context) error { return f() }) }
		},
		"large files": func(e *engine) func(func() error) bool {
			return func(f func() error) bool { return e.inParts("x", f) }
		},
	} {
		for range 1000 {
			e := newEngine(t.Context(), Options{Workers: 1})
			another := begin(e)
			for range cap(e.large) - 1 { // of large files, all but one turn are taken
				e.large <- struct{}{}
			}
			began := make(chan bool, 10)
			another(func() error { began <- true; return fail })
			for range 3 {
				if another(func() error { began <- true; return nil }) {
					t.Errorf("%s: one is begun after an error", what)
				}
			}
			e.finish()
			if len(began) != 1 {
				t.Fatalf("%s: %d were begun", what, len(began))
			}
		}
	}
}
