package transfer

import (
	"context"
	"errors"
	"strings"

	"github.com/skypilot-go/sky/internal/storage"
)

// A listing reads the pages of a list ahead of whoever takes its objects.
type listing struct {
	pages chan storage.Page
	err   error // valid when pages is closed
	page  storage.Page
	i     int
	stop  context.CancelFunc
}

// errEndless means that a list does not go on.
var errEndless = errors.New("the store answers with the same page of a list again")

// pageAfterPage calls f with all pages, or until it says no.
func pageAfterPage(ctx context.Context, list func(context.Context, storage.ListOptions) (storage.Page, error), o storage.ListOptions, f func(storage.Page) bool) error {
	for {
		page, err := list(ctx, o)
		if err != nil {
			return err
		}
		if !f(page) || page.Next == "" {
			return nil
		}
		if page.Next == o.Token {
			return errEndless
		}
		o.Token = page.Next
	}
}

// list begins to read a list. The caller closes it.
func list(ctx context.Context, b storage.Bucket, prefix string) *listing {
	l := &listing{pages: make(chan storage.Page, 2)}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.pages)
		l.err = pageAfterPage(ctx, b.List, storage.ListOptions{Prefix: prefix}, func(p storage.Page) bool {
			select {
			case l.pages <- p:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return l
}

// close ends the list early.
func (l *listing) close() {
	l.stop()
	for range l.pages {
	}
}

// peek is the next object; nil: there are no more, or there is an error.
func (l *listing) peek() (*storage.Object, error) {
	for l.i >= len(l.page.Objects) {
		page, more := <-l.pages
		if !more {
			return nil, l.err
		}
		l.page, l.i = page, 0
	}
	return &l.page.Objects[l.i], nil
}

func (l *listing) skip() { l.i++ }

// find is the object with a key, which comes after those that were asked for before;
// nil: there is none.
func (l *listing) find(key string) (*storage.Object, error) {
	for {
		o, err := l.peek()
		if o == nil || err != nil || o.Key > key {
			return nil, err
		}
		l.skip()
		if o.Key == key {
			return o, nil
		}
	}
}

// folder is a prefix as what is put before the paths of files: "" or ending in "/".
func folder(prefix string) string {
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		return prefix
	}
	return prefix + "/"
}
