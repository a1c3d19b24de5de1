// Package statetest gives tests a database server's part of the state store.
package statetest

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

var schemas atomic.Int64

// Postgres makes an empty schema in the database whose URL is in
// SKY_TEST_POSTGRES, to be dropped when the test ends, and returns the URL that
// opens it. Without the variable the test is skipped.
func Postgres(t testing.TB) string {
	t.Helper()
	address := os.Getenv("SKY_TEST_POSTGRES")
	if address == "" {
		t.Skip("SKY_TEST_POSTGRES does not hold the URL of a PostgreSQL database")
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("SKY_TEST_POSTGRES: %v", err)
	}
	admin, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("sky_test_%d_%d", os.Getpid(), schemas.Add(1))
	if _, err := admin.Exec("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP SCHEMA " + name + " CASCADE"); err != nil {
			t.Error(err)
		}
		admin.Close()
	})
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}
