package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

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
	explain: explainPostgres,
}

// maxPostgres bounds the connections of one server: a small database allows
// about a hundred, and several servers share it.
const maxPostgres = 16

// OpenPostgres opens a PostgreSQL database by its URL and brings its schema
// up to date. Any number of servers may have it open.
func OpenPostgres(ctx context.Context, address string) (*Store, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("the database address is not a PostgreSQL URL such as postgres://user@host:5432/sky: %w", hidePassword(address, err))
	}
	pool := stdlib.OpenDB(*cfg)
	pool.SetMaxOpenConns(maxPostgres)
	pool.SetMaxIdleConns(maxPostgres)
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		pool.Close()
		return nil, err
	}
	return open(ctx, &database{
		d:       postgresDialect,
		where:   fmt.Sprintf("postgres://%s:%d/%s", cfg.Host, cfg.Port, cfg.Database),
		migrate: pool,
		options: []goose.ProviderOption{goose.WithSessionLocker(locker)},
		write: func(ctx context.Context, f func(*session) error) error {
			return transaction(ctx, pool, f)
		},
		read: func(ctx context.Context) *session {
			return &session{ctx: ctx, d: postgresDialect, db: pool}
		},
		close: pool.Close,
	})
}

func transaction(ctx context.Context, pool *sql.DB, f func(*session) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(&session{ctx: ctx, d: postgresDialect, db: tx}); err != nil {
		return err
	}
	return tx.Commit()
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
