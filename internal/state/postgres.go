package state

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

var postgresDialect = &dialect{
	name:   "postgres",
	goose:  goose.DialectPostgres,
	rebind: numbered,
	glob: func(column, pattern string) (string, any) {
		return column + " ~ ?", globRegexp(pattern)
	},
	prefixed: func(column, prefix string) (string, []any) {
		return "starts_with(" + column + ", ?)", []any{prefix}
	},
	free:    " FOR UPDATE SKIP LOCKED",
	inTurn:  " FOR UPDATE",
	explain: explainPostgres,
}

// maxPostgres bounds the connections of one server: a small database allows
// about a hundred, and several servers share it.
const maxPostgres = 16

// Bounds of what a database that is slow, or cut off without a word, can hold up.
const (
	connectLimit  = 10 * time.Second // making a connection
	postgresLimit = 20 * time.Second // one query, or one transaction
)

// oldestPostgres is the first version whose SQL we use, as its
// server_version_num.
const oldestPostgres = 120000

// OpenPostgres opens a PostgreSQL database by its address and brings its schema
// up to date. Any number of servers may have it open. The address is a URL,
// postgres:// or postgresql://, with or without the driver that SQLAlchemy adds
// (postgresql+psycopg2://), or a list of key=value. No error shows its password.
func OpenPostgres(ctx context.Context, address string) (*Store, error) {
	return OpenPostgresIf(ctx, address, nil)
}

// OpenPostgresIf is OpenPostgres unless accept, which hears what the database is
// before anything in it is changed, returns an error: that is returned then.
func OpenPostgresIf(ctx context.Context, address string, accept func(Found) error) (*Store, error) {
	address, err := postgresAddress(address)
	if err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("the database address is not a PostgreSQL URL such as postgresql://user:password@host:5432/sky: %w", hidePassword(address, err))
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectLimit
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "sky"
	}
	pool := stdlib.OpenDB(*cfg)
	pool.SetMaxOpenConns(maxPostgres)
	pool.SetMaxIdleConns(maxPostgres)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	where := fmt.Sprintf("postgresql://%s:%d/%s", cfg.Host, cfg.Port, cfg.Database)
	if err := supported(ctx, pool); err != nil {
		return nil, errors.Join(explainPostgres(where, err), pool.Close())
	}
	if accept != nil {
		found, err := inspectPostgres(ctx, pool, where)
		if err == nil {
			err = accept(found)
		}
		if err != nil {
			return nil, errors.Join(explainPostgres(where, err), pool.Close())
		}
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		pool.Close()
		return nil, err
	}
	return open(ctx, &database{
		d:       postgresDialect,
		where:   where,
		migrate: pool,
		options: []goose.ProviderOption{goose.WithSessionLocker(locker)},
		write: func(ctx context.Context, f func(*session) error) error {
			return transaction(ctx, pool, f)
		},
		read: func(ctx context.Context) *session {
			return &session{ctx: ctx, d: postgresDialect, db: pool, limit: postgresLimit, patient: true}
		},
		close: pool.Close,
	})
}

// postgresAddress is an address in the form that the driver reads.
func postgresAddress(address string) (string, error) {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		if strings.Contains(address, "=") {
			return address, nil
		}
		return "", errors.New("the database address has no scheme: write it as postgresql://user:password@host:5432/sky")
	}
	base, _, _ := strings.Cut(strings.ToLower(scheme), "+")
	if base != "postgresql" && base != "postgres" {
		return "", fmt.Errorf("the database address begins with %s://, but besides the SQLite file that is used without an address only PostgreSQL is supported: postgresql://user:password@host:5432/sky", scheme)
	}
	return "postgresql://" + rest, nil
}

// supported refuses servers that are too old, before they are changed.
func supported(ctx context.Context, pool *sql.DB) error {
	s := &session{ctx: ctx, d: postgresDialect, db: pool, limit: postgresLimit}
	var version string
	if err := s.one([]any{&version}, "SELECT current_setting('server_version_num')"); err != nil {
		return err
	}
	n, err := strconv.Atoi(version)
	if err == nil && n < oldestPostgres {
		return fmt.Errorf("the database is PostgreSQL %d.%d, and sky needs %d or newer: upgrade it", n/10000, n/100%100, oldestPostgres/10000)
	}
	return nil
}

// inspectPostgres says what a database is.
func inspectPostgres(ctx context.Context, pool *sql.DB, where string) (Found, error) {
	f := Found{Where: where, Checked: true}
	q := &session{ctx: ctx, d: postgresDialect, db: pool, limit: postgresLimit, patient: true}
	var used bool
	if err := q.one([]any{&used}, "SELECT to_regclass('settings') IS NOT NULL"); err != nil {
		return f, err
	}
	if !used {
		f.Empty = true
		return f, nil
	}
	return f, foundIn(q, &f)
}

// outageLimit is how long a query waits for a database that went away, as it
// does for seconds when it is restarted or fails over.
const (
	outageLimit = 15 * time.Second
	outagePause = 200 * time.Millisecond
)

// errUnsure means that the connection broke while a change was committed: it may
// have happened or not.
var errUnsure = errors.New("the connection to the database broke during a commit")

// patient runs f until it gets through to the database. What f does must have
// left nothing behind when it fails that way.
func patient(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(outageLimit)
	for {
		err := f()
		if err == nil || !away(err) || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(outagePause):
		}
	}
}

// away reports whether an error says that the database could not be reached, or
// is going down or coming up.
func away(err error) bool {
	if errors.Is(err, errUnsure) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(e.Code, "57P") || strings.HasPrefix(e.Code, "08")
	}
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		_, refused := errors.AsType[*net.OpError](e)
		return refused || errors.Is(e, io.ErrUnexpectedEOF) || errors.Is(e, io.EOF)
	}
	_, network := errors.AsType[*net.OpError](err)
	return network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// Unanswered reports whether an error says that the database was away or gave no
// answer in time, and that nothing of what was asked of it has happened.
func Unanswered(err error) bool {
	return err != nil && !errors.Is(err, errUnsure) && (away(err) || errors.Is(err, errSlow) || errors.Is(err, context.DeadlineExceeded))
}

// transaction runs f on a connection of its own, again if the database was away:
// nothing of it has happened then. What is not committed within the limit is
// undone. [errUnsure] comes from a commit whose answer was lost.
func transaction(ctx context.Context, pool *sql.DB, f func(*session) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, postgresLimit, errSlow)
	defer cancel()
	return patient(ctx, func() error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f(&session{ctx: ctx, d: postgresDialect, db: tx}); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			if _, answered := errors.AsType[*pgconn.PgError](err); answered && !away(err) {
				return err
			}
			return errors.Join(errUnsure, err)
		}
		return nil
	})
}

// globRegexp is a shell pattern as a regular expression.
func globRegexp(pattern string) string {
	var b strings.Builder
	b.WriteByte('^')
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '[':
			end := strings.IndexByte(pattern[i+1:], ']')
			if end <= 0 {
				b.WriteString(`\[`)
				continue
			}
			set := pattern[i+1 : i+1+end]
			i += end + 1
			negate := ""
			if set[0] == '!' || set[0] == '^' {
				negate, set = "^", set[1:]
			}
			b.WriteString("[" + negate + strings.ReplaceAll(set, `\`, `\\`) + "]")
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteByte('$')
	return b.String()
}

// explainPostgres says in a user's words what is wrong with the connection.
func explainPostgres(where string, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "28P01", "28000":
			return fmt.Errorf("the database at %s refused the user or password: %w", where, err)
		case "3D000":
			return fmt.Errorf("there is no such database at %s: create it first: %w", where, err)
		case "53100":
			return fmt.Errorf("the database at %s has no space left: %w", where, err)
		case "53300":
			return fmt.Errorf("the database at %s allows no more connections: raise max_connections, or run fewer API servers: %w", where, err)
		case "42501":
			return fmt.Errorf("the user may not change the database at %s: grant it the CREATE privilege: %w", where, err)
		case "25006":
			return fmt.Errorf("the database at %s is read-only, perhaps a standby: connect to the primary: %w", where, err)
		}
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the database at %s does not answer in time: %w", where, err)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return fmt.Errorf("no connection to the database at %s: check that it runs and can be reached from here: %w", where, err)
	}
	return err
}

// hidePassword removes the address, which may hold a password, from an error.
func hidePassword(address string, err error) error {
	msg := strings.ReplaceAll(err.Error(), address, "<address>")
	if u, perr := url.Parse(address); perr == nil && u.User != nil {
		if p, ok := u.User.Password(); ok && p != "" {
			msg = strings.ReplaceAll(msg, p, "***")
		}
	}
	return errors.New(msg)
}
