package bounded

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func tooMuch(err error) bool { _, ok := errors.AsType[*TooMuchError](err); return ok }

// endless is one JSON value that does not end.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	if e.n == 0 && len(p) > 0 {
		p[0] = '"'
	}
	e.n += int64(len(p))
	return len(p), nil
}

func TestReadAllKeepsTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "text")
		most := rapid.IntRange(0, 100).Draw(t, "most")
		b, err := ReadAll(iotest.OneByteReader(strings.NewReader(string(text))), int64(most), "it")
		switch {
		case len(text) > most && !tooMuch(err):
			t.Fatalf("%d of at most %d bytes: %v", len(text), most, err)
		case len(text) <= most && (err != nil || string(b) != string(text)):
			t.Fatalf("%d of at most %d bytes: %q, %v", len(text), most, b, err)
		}
	})
}

func TestNothingIsReadBeyondTheLimit(t *testing.T) {
	const most = 1 << 20
	for name, read := range map[string]func(io.Reader) error{
		"reader":  func(r io.Reader) error { _, err := io.Copy(io.Discard, Reader(r, most, "it")); return err },
		"all":     func(r io.Reader) error { _, err := ReadAll(r, most, "it"); return err },
		"JSON":    func(r io.Reader) error { return JSON(r, most, "it", new(string)) },
		"message": func(r io.Reader) error { return NewSemaphore().Message(t.Context(), r, most, "it", new(string)) },
		"short message": func(r io.Reader) error {
			return Semaphore(nil).Message(t.Context(), r, free/2, "it", new(string))
		},
		"line": func(r io.Reader) error {
			return NewLines(r, most, "it", NewSemaphore()).Decode(t.Context(), new(string))
		},
		"line reader": func(r io.Reader) error {
			_, err := io.Copy(io.Discard, LineReadCloser(io.NopCloser(r), most, "it"))
			return err
		},
		"buffer": func(r io.Reader) error {
			_, err := io.Copy(&Buffer{Most: most, What: "it"}, r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &endless{}
			if err := read(r); !tooMuch(err) || r.n > most+128<<10 {
				t.Errorf("%v after %d bytes", err, r.n)
			}
		})
	}
}

// Two bytes of JSON make a record of hundreds.
func TestManySmallObjectsAreRefused(t *testing.T) {
	type record struct{ Name, Status, Reason string }
	var got []record
	if err := json.Unmarshal([]byte("[{}]"), &got); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	small := "[" + strings.Repeat("{},", 1<<20) + "{}]"
	if err := JSON(strings.NewReader(small), 64<<20, "it", &got); !tooMuch(err) || !strings.Contains(err.Error(), "objects") {
		t.Errorf("got %v", err)
	}
	usual := `{"Name":"a job of usual length","Status":"RUNNING","Reason":"none at all"}`
	list := "[" + strings.Repeat(usual+",", 50_000) + usual + "]"
	if err := JSON(strings.NewReader(list), 64<<20, "it", &got); err != nil || len(got) != 50_001 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestLines(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", free) + `"}`
	l := NewLines(iotest.HalfReader(strings.NewReader("{\"a\":\"1\"}\n\n{\"a\":\"2\"}\r\n"+long+"\n{\"a\":\"4\"}\n{\"a\":")), 1<<20, "it", NewSemaphore())
	var sizes []int
	for {
		var v struct{ A string }
		err := l.Decode(t.Context(), &v)
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			break
		}
		sizes = append(sizes, len(v.A))
	}
	if len(sizes) != 4 || sizes[2] != free {
		t.Errorf("got %v", sizes)
	}
	if err := NewLines(strings.NewReader("1\n"), 9, "it", nil).Decode(t.Context(), new(int)); err != nil {
		t.Error(err)
	}
	if err := NewLines(strings.NewReader(""), 9, "it", nil).Decode(t.Context(), new(int)); err != io.EOF {
		t.Error(err)
	}
}

// The reader that has the semaphore holds its message; the others hold what is free.
func TestLongMessagesAreHeldInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := NewSemaphore()
		r, w := io.Pipe()
		first := make(chan error, 1)
		go func() { first <- sem.Message(t.Context(), r, 8<<20, "it", new(string)) }()
		if _, err := w.Write([]byte(`"` + strings.Repeat("a", free))); err != nil {
			t.Fatal(err)
		}
		second := &endless{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := sem.Message(ctx, second, 8<<20, "it", new(string)); !errors.Is(err, context.DeadlineExceeded) || second.n > 2*free {
			t.Errorf("%v after %d bytes", err, second.n)
		}
		if err := NewLines(second, 8<<20, "it", sem).Decode(ctx, new(string)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a line: %v", err)
		}
		if err := sem.Message(t.Context(), strings.NewReader(`"short"`), 8<<20, "it", new(string)); err != nil {
			t.Errorf("what is short waits: %v", err)
		}
		w.Write([]byte(`"`))
		w.Close()
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := sem.Message(t.Context(), strings.NewReader(`"`+strings.Repeat("a", free)+`"`), 8<<20, "it", nil); err != nil {
			t.Errorf("after the first: %v", err)
		}
	})
}

func TestBuffer(t *testing.T) {
	over := 0
	b := Buffer{Most: 4, What: "the output", Over: func() { over++ }}
	b.Write([]byte("1234"))
	if got, err := b.Bytes(); string(got) != "1234" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	b.Write([]byte("5"))
	b.Write([]byte("6"))
	if got, err := b.Bytes(); got != nil || !tooMuch(err) || over != 1 {
		t.Errorf("%q, %v, %d", got, err, over)
	}
}

func TestTooMuchErrorSaysHowMuch(t *testing.T) {
	for want, e := range map[string]*TooMuchError{
		"an answer is longer than 64 MiB, the limit":  {What: "an answer", Most: 64 << 20},
		"an answer is longer than 64 KiB, the limit":  {What: "an answer", Most: 64 << 10},
		"an answer is longer than 7 bytes, the limit": {What: "an answer", Most: 7},
		"a list has more than 10000 pages, the limit": {What: "a list", Most: 10_000, Unit: "pages"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := NewPace(100, 20), time.Now()
		for range 100 + 10*20 {
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began).Round(time.Second); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		allowed := 0
		for range 200 {
			if p.Allow() {
				allowed++
			}
		}
		if allowed != 100 {
			t.Errorf("%d at once", allowed)
		}
	})
}
