package httpcall

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		header http.Header
		want   time.Duration
	}{
		{http.Header{}, 0},
		{http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		{http.Header{"Retry-After": {" 0.5 "}}, 500 * time.Millisecond},
		{http.Header{"Retry-After": {"Fri, 02 Jan 2026 03:04:15 GMT"}}, 10 * time.Second},
		{http.Header{"Retry-After": {"Fri, 02 Jan 2026 03:04:00 GMT"}}, 0},
		{http.Header{"Retry-After": {"-1"}}, 0},
		{http.Header{"Retry-After": {"soon"}}, 0},
		{http.Header{"Retry-After": {"1"}, "Retry-After-Ms": {"250"}}, 250 * time.Millisecond},
		{http.Header{"Retry-After": {"1"}, "X-Ms-Retry-After-Ms": {"300"}}, 300 * time.Millisecond},
	} {
		if got := RetryAfter(tt.header, now); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.header, got, tt.want)
		}
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		tokens := NewTokens(func(context.Context) (Token, error) {
			asked++
			return Token{Value: fmt.Sprint(asked), Expires: time.Now().Add(time.Hour)}, nil
		})
		want := func(value string) {
			t.Helper()
			if got, err := tokens.Current(t.Context()); err != nil || got.Value != value {
				t.Errorf("%v, %v, want %s", got, err, value)
			}
		}
		want("1")
		time.Sleep(59 * time.Minute)
		want("1")
		time.Sleep(time.Second)
		want("2") // it ends in less than a minute
		tokens.Forget("1")
		want("2")
		tokens.Forget("2")
		want("3")
	})
}

func TestATokenWithoutAnEndIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		tokens := NewTokens(func(context.Context) (Token, error) { asked++; return Token{Value: "t"}, nil })
		for range 3 {
			if _, err := tokens.Current(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1000 * time.Hour)
		}
		if asked != 1 {
			t.Errorf("it was asked for %d times", asked)
		}
	})
}

// A caller that leaves does not wait for the token that another one asks for.
func TestCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := NewTokens(func(ctx context.Context) (Token, error) {
			<-ctx.Done()
			return Token{}, context.Cause(ctx)
		})
		first, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := tokens.Current(first); done <- err }()
		synctest.Wait()
		left, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := tokens.Current(left); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waited, and got %v", err)
		}
		end()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestAnEmptyTokenIsAnError(t *testing.T) {
	tokens := NewTokens(func(context.Context) (Token, error) { return Token{}, nil })
	if _, err := tokens.Current(t.Context()); err == nil {
		t.Error("it was taken")
	}
}
