//go:build unix

package filesync

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestNothingMoves(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"f": "1"})
	Warm()
	t.Run("the receiver is silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			go io.Copy(io.Discard, b)
			start := time.Now()
			_, err := Send(t.Context(), a, Options{Src: Local(src), Dst: "d", Timeout: 10 * time.Second})
			if e, ok := errors.AsType[*StalledError](err); !ok || !e.Timeout() {
				t.Error(err)
			}
			if took := time.Since(start); took < 10*time.Second || took > 15*time.Second {
				t.Errorf("gave up after %v", took)
			}
			b.Close()
		})
	})
	t.Run("the receiver does not read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			_, err := Send(t.Context(), a, Options{Src: Local(src), Dst: "d"})
			if e, ok := errors.AsType[*StalledError](err); !ok || e.After != defaultTimeout {
				t.Error(err)
			}
		})
	})
	t.Run("the sender is silent", func(t *testing.T) {
		home := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			go io.Copy(io.Discard, a)
			go a.Write(seal(hello{dst: "d"}.frame()))
			start := time.Now()
			err := Serve(t.Context(), b, home)
			if _, ok := errors.AsType[*StalledError](err); !ok || time.Since(start) < defaultTimeout {
				t.Error(err, time.Since(start))
			}
			b.Close()
		})
	})
	t.Run("between two syncs there is no hurry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			done := make(chan error)
			go func() { done <- Serve(t.Context(), b, "/nowhere") }()
			time.Sleep(1000 * defaultTimeout)
			a.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

// onlyStream hides everything of a connection but reading, writing and
// perhaps closing.
type onlyStream struct {
	io.ReadWriter
	io.Closer
}

func TestCancel(t *testing.T) {
	src, home := t.TempDir(), t.TempDir()
	write(t, src, map[string]string{"f": noise(1 << 20)})
	for _, closer := range []bool{false, true} {
		a, b := net.Pipe()
		var client, server io.ReadWriter = a, b
		if closer {
			client, server = onlyStream{a, a}, onlyStream{b, b}
		}
		go io.CopyN(io.Discard, b, 100) // and then nobody reads
		ctx, cancel := context.WithCancelCause(t.Context())
		mine := errors.New("the user has had enough")
		time.AfterFunc(20*time.Millisecond, func() { cancel(mine) })
		start := time.Now()
		if _, err := Send(ctx, client, Options{Src: Local(src), Dst: "d"}); !errors.Is(err, mine) {
			t.Error(err)
		}
		a.Close()
		b.Close()
		a, b = net.Pipe()
		if server = b; closer {
			server = onlyStream{b, b}
		}
		for _, opening := range [][]byte{nil, seal(hello{dst: "d"}.frame())} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(mine) })
			go a.Write(opening)
			if err := Serve(ctx, server, home); !errors.Is(err, mine) {
				t.Error(err)
			}
			b.SetDeadline(time.Time{})
			if closer {
				break // it has been closed
			}
		}
		a.Close()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	}
	if _, err := Send(canceled(), nil, Options{Src: Local(src), Dst: "d"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestServeEndsAtTheEnd(t *testing.T) {
	var nothing struct {
		io.Reader
		io.Writer
	}
	nothing.Reader, nothing.Writer = bytes.NewReader(nil), io.Discard
	if err := Serve(t.Context(), nothing, t.TempDir()); err != nil {
		t.Error(err)
	}
	nothing.Reader = bytes.NewReader(seal(hello{dst: "d"}.frame())[:5])
	if err := Serve(t.Context(), nothing, t.TempDir()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
