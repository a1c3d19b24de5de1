package state

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"

	"github.com/pressly/goose/v3"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// dialect is everything in which the two databases differ. The SQL in the
// stores is the same for both.
type dialect struct {
	name   string
	goose  goose.Dialect
	rebind func(query string) string
	// glob is the condition that column matches a shell pattern, and its argument.
	glob func(column, pattern string) (string, any)
	// prefixed is the condition that column begins with prefix, and its arguments.
	prefixed func(column, prefix string) (string, []any)
	// free ends a SELECT of rows to be changed that takes only those that nobody
	// else is changing, and inTurn one that waits for them in the order in which it
	// lists them. With a single writer there is nobody else.
	free, inTurn string
	// explain adds to a database error what the user can do about it.
	explain func(where string, err error) error
}

// isGlob reports whether a name is a shell pattern.
func isGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// numbered turns each "?" into $1, $2, …; the stores' SQL has no other "?".
var numbered = func() func(string) string {
	var known sync.Map
	return func(query string) string {
		if q, ok := known.Load(query); ok {
			return q.(string)
		}
		var b strings.Builder
		n := 0
		for i := range len(query) {
			if query[i] != '?' {
				b.WriteByte(query[i])
				continue
			}
			n++
			b.WriteString("$" + strconv.Itoa(n))
		}
		q := b.String()
		if !strings.Contains(query, " IN (") { // lists vary in length: not worth keeping
			known.Store(query, q)
		}
		return q
	}
}()

// database is the way to one database: SQLite has a writer and readers,
// PostgreSQL one pool for both.
type database struct {
	d     *dialect
	where string // path or address, for messages; no password
	write func(ctx context.Context, f func(*session) error) error
	read  func(ctx context.Context) *session
	close func() error
	// witnessed makes a database that can lose what it has acknowledged tell of each
	// generation; nil: it cannot.
	witnessed func(generation int64, w Witness)
	// reserve gives the database room for when its disk is full; nil: it needs none.
	reserve func(*diskspace.Reserve)
	// tidy prepares an older file for what this sky does to it; nil: there is none.
	tidy func(ctx context.Context)
	// clear leaves no old content in free parts of the database; nil: it has its own
	// ways.
	clear func(ctx context.Context) error
	// migrate is the pool that the schema is brought up to date through; turn
	// waits until no other process does that, if the driver does not by itself.
	migrate *sql.DB
	turn    func(context.Context) (done func() error, err error)
	options []goose.ProviderOption
}
