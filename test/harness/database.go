//go:build linux

package harness

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the test's own database
)

// A Database is one of a test's own on the server that SKY_TEST_POSTGRES names.
type Database struct {
	T   testing.TB
	URL *url.URL

	server, own *sql.DB
}

var databases atomic.Int64

// NewDatabase makes an empty database until the test ends. SKY_TEST_POSTGRES must
// be set.
func NewDatabase(t testing.TB) *Database {
	t.Helper()
	address := os.Getenv("SKY_TEST_POSTGRES")
	u, err := url.Parse(address)
	if err != nil || address == "" {
		t.Fatalf("SKY_TEST_POSTGRES is %q: %v", address, err)
	}
	d := &Database{T: t, URL: u}
	u.Path = fmt.Sprintf("/sky_test_%d_%d", os.Getpid(), databases.Add(1))
	if d.server, err = sql.Open("pgx", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.server.Close() })
	if d.own, err = sql.Open("pgx", u.String()); err != nil {
		t.Fatal(err)
	}
	d.own.SetMaxIdleConns(0) // so that it can be dropped and renamed
	d.Drop()
	d.SQL("CREATE DATABASE " + d.Name())
	t.Cleanup(d.Drop)
	t.Cleanup(func() { d.own.Close() })
	return d
}

// Name is the name of the database.
func (d *Database) Name() string { return strings.TrimPrefix(d.URL.Path, "/") }

// SQL executes a statement on the database server, outside of the database.
func (d *Database) SQL(query string) {
	d.T.Helper()
	if _, err := d.server.Exec(query); err != nil {
		d.T.Errorf("%s: %v", query, err)
	}
}

// Drop removes the database, whoever is connected to it.
func (d *Database) Drop() {
	d.T.Helper()
	d.SQL("DROP DATABASE IF EXISTS " + d.Name() + " WITH (FORCE)")
}

// One reads one value from the database.
func (d *Database) One(v any, query string) error { return d.own.QueryRow(query).Scan(v) }
