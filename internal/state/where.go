package state

import "strings"

// where collects the conditions of a SELECT.
type where struct {
	parts []string
	args  []any
}

func (w *where) add(cond string, args ...any) {
	w.parts = append(w.parts, cond)
	w.args = append(w.args, args...)
}

func (w *where) equal(column, value string) {
	if value != "" {
		w.add(column+" = ?", value)
	}
}

// in selects rows whose column is one of the values; none selects all.
func in[T ~string](w *where, column string, list []T) {
	if len(list) > 0 {
		args := make([]any, len(list))
		for i, v := range list {
			args[i] = string(v)
		}
		w.add(column+" IN ("+marks(len(list))+")", args...)
	}
}

// within selects rows whose workspace a scope sees; nil sees all.
func within(w *where, column string, s *Scope) {
	in(w, "CASE WHEN "+column+" = '' THEN '"+DefaultWorkspace+"' ELSE "+column+" END", s.Within())
}

// anyOf selects rows whose column is one of the names or matches one that is
// a shell pattern; none selects all.
func (w *where) anyOf(d *dialect, column string, names []string) {
	var alt where
	var exact []string
	for _, name := range names {
		if isGlob(name) {
			cond, arg := d.glob(column, name)
			alt.add(cond, arg)
		} else {
			exact = append(exact, name)
		}
	}
	in(&alt, column, exact)
	w.either(alt)
}

// either adds conditions of which one must hold; none is no condition.
func (w *where) either(alt where) {
	if len(alt.parts) > 0 {
		w.add("("+strings.Join(alt.parts, " OR ")+")", alt.args...)
	}
}

func (w *where) String() string {
	if len(w.parts) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(w.parts, " AND ")
}

// page limits a query; limit 0 is none.
func page(query string, args []any, limit, offset int) (string, []any) {
	if limit > 0 {
		query += " LIMIT ?"
		args = append(args, limit)
	}
	if offset > 0 {
		if limit <= 0 { // SQLite knows no OFFSET without a LIMIT
			query += " LIMIT ?"
			args = append(args, int64(1)<<62)
		}
		query += " OFFSET ?"
		args = append(args, offset)
	}
	return query, args
}
