package state

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// Whoever has the only connection must be able to go on while somebody else waits
// for it to prepare another query.
func TestPreparingWaitsForNobodyWhoHasAConnection(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := newStatements()
	var g errgroup.Group
	for who := range 8 {
		g.Go(func() error {
			for i := range 50 {
				st, err := c.get(ctx, db, fmt.Sprintf("SELECT %d", (who*7+i)%40))
				if err != nil {
					return err
				}
				rows, err := st.QueryContext(ctx)
				c.done(st) // with the connection in hand
				if err != nil {
					return err
				}
				if err := rows.Close(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-ctx.Done():
		t.Fatal("they wait for each other")
	}
}
