package installation

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/state/statetest"
)

// openPostgres opens a database as a server of a home folder does.
func openPostgres(home, address string) (*state.Store, error) {
	m := Of(home)
	was, err := m.Mark(PostgreSQL)
	if err != nil {
		return nil, err
	}
	s, err := state.OpenPostgresIf(context.Background(), address, func(f state.Found) error {
		if lost := Judge(PostgreSQL, was, f); lost != nil {
			return lost
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if was == nil {
		was = &Mark{ID: home}
	}
	owner, generation, err := s.Claim(context.Background(), was.ID, was.Generation)
	if err == nil {
		err = m.Note(PostgreSQL, Mark{ID: owner, Generation: generation})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// tables is what a schema holds: its tables, and all settings.
func tables(t *testing.T, address string) string {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var out string
	if err := db.QueryRow("SELECT coalesce(string_agg(tablename, ' ' ORDER BY tablename), '') FROM pg_tables WHERE schemaname = current_schema()").Scan(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(" "+out+" ", " settings ") {
		var settings string
		if err := db.QueryRow("SELECT string_agg(name || '=' || encode(value, 'escape'), ' ' ORDER BY name) FROM settings").Scan(&settings); err != nil {
			t.Fatal(err)
		}
		out += "\n" + settings
	}
	return out
}

func TestAnotherPostgreSQLDatabaseIsRefused(t *testing.T) {
	here, elsewhere, empty := statetest.Postgres(t), statetest.Postgres(t), statetest.Postgres(t)
	home := t.TempDir()
	open := func(home, address string) error {
		s, err := openPostgres(home, address)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	for _, each := range []struct{ home, address string }{{home, here}, {t.TempDir(), elsewhere}, {home, here}} {
		if err := open(each.home, each.address); err != nil {
			t.Fatal(err)
		}
	}
	// A server that joins takes what is there, and is of that installation from then on.
	joined := t.TempDir()
	if err := open(joined, here); err != nil {
		t.Fatal(err)
	}
	if m, err := Of(joined).Mark(PostgreSQL); err != nil || m.ID != home {
		t.Errorf("the server that joined serves %+v, %v", m, err)
	}
	was, err := Of(home).Mark(PostgreSQL)
	if err != nil {
		t.Fatal(err)
	}
	older := *was
	for _, tt := range []struct {
		name    string
		address string
		mark    Mark
		want    Loss
		says    []string
	}{
		{"the same", here, older, "", nil},
		{"an empty one", empty, older, Empty, []string{"is empty", home, "--start-anew", "Restore a dump"}},
		{"another installation's", elsewhere, older, Foreign, []string{"another installation", home, "--accept-database", "db:"}},
		{"an older dump of it", here, Mark{ID: home, Generation: was.Generation + 100}, Older, []string{"older copy", "--accept-database", "sky sweep --adopt", "Restore a dump"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mine := t.TempDir()
			if err := Of(mine).Note(PostgreSQL, tt.mark); err != nil {
				t.Fatal(err)
			}
			before := tables(t, tt.address)
			err := open(mine, tt.address)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			lost, ok := errors.AsType[*LostError](err)
			if !ok || lost.Loss != tt.want || lost.Kind != PostgreSQL {
				t.Fatalf("%v, want a database that is %s", err, tt.want)
			}
			for _, text := range tt.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is missing in:\n%v", text, err)
				}
			}
			if u, _ := url.Parse(tt.address); u.User != nil {
				if p, ok := u.User.Password(); ok && strings.Contains(err.Error(), p) {
					t.Errorf("the refusal tells the password:\n%v", err)
				}
			}
			if after := tables(t, tt.address); after != before {
				t.Errorf("the refused database was changed from\n%s\nto\n%s", before, after)
			}
			if m, err := Of(mine).Mark(PostgreSQL); err != nil || m.ID != tt.mark.ID || m.Generation != tt.mark.Generation {
				t.Errorf("what is remembered became %+v, %v", m, err)
			}
		})
	}
}
