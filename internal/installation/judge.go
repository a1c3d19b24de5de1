package installation

import (
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Loss is what is wrong with a database.
type Loss string

// What can be wrong.
const (
	Missing Loss = "missing" // there is no file
	Empty   Loss = "empty"   // nothing of an installation is in it
	Older   Loss = "older"   // than what this home folder has seen
	Foreign Loss = "foreign" // of another installation
	Damaged Loss = "damaged"
)

// LostError means that a database is not what this home folder knows. Nothing was
// changed.
type LostError struct {
	Loss  Loss
	Kind  Kind
	Where string // path or address of the database
	Was   Mark   // what is remembered; zero: nothing
	Trace string // the file that shows that there was an installation, if nothing is remembered of it
	Found state.Found
}

// Judge says what is wrong with a database that was found, nil if nothing is. A
// home folder that remembers nothing takes any database that is whole: it is new,
// or a server that joins others.
func Judge(k Kind, was *Mark, found state.Found) *LostError {
	lost := func(l Loss) *LostError {
		e := &LostError{Loss: l, Kind: k, Where: found.Where, Found: found}
		if was != nil {
			e.Was = *was
		}
		return e
	}
	switch {
	case found.Damage != nil:
		return lost(Damaged)
	case was == nil:
		return nil
	case found.Missing:
		return lost(Missing)
	case found.Empty:
		return lost(Empty)
	case found.ID != was.ID:
		return lost(Foreign)
	case found.Generation < was.Generation:
		return lost(Older)
	}
	return nil
}

// JudgeNew says what is wrong with a database of a home folder that remembers
// nothing: a file that is not there, or without content, although something of an
// installation is.
func JudgeNew(found state.Found, trace string) *LostError {
	if trace == "" || !found.Missing && !found.Empty {
		return nil
	}
	e := &LostError{Loss: Missing, Kind: File, Where: found.Where, Found: found, Trace: trace}
	if !found.Missing {
		e.Loss = Empty
	}
	return e
}

// Acceptable reports whether a server can go on with the database as it is, if
// somebody says so.
func (l Loss) Acceptable() bool { return l == Older || l == Foreign }

// Renewable reports whether a database can be begun anew in its place.
func (e *LostError) Renewable() bool { return e.Kind == File || e.Loss == Empty }

func (e *LostError) Unwrap() error { return e.Found.Damage }

func (e *LostError) Error() string {
	var b strings.Builder
	b.WriteString(e.what())
	b.WriteString(".\n")
	if e.Was.ID != "" || e.Trace != "" {
		b.WriteString("Machines of the installation may run and cost money. ")
	}
	b.WriteString("Nothing was changed. The ways out:\n")
	for _, w := range e.waysOut() {
		fmt.Fprintf(&b, "  %s\n      %s\n", w.what, w.command)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (e *LostError) what() string {
	known := fmt.Sprintf("this home folder serves installation %s", e.Was.ID)
	if !e.Was.At.IsZero() {
		known += fmt.Sprintf(", whose database was last seen on %s in generation %d", e.Was.At.UTC().Format(time.DateTime+" UTC"), e.Was.Generation)
	}
	if e.Trace != "" {
		known = fmt.Sprintf("%s shows that this home folder has served an installation, and the file that says which one, installation.json, is gone", e.Trace)
	}
	switch e.Loss {
	case Missing:
		return fmt.Sprintf("the database %s is missing: %s", e.Where, known)
	case Empty:
		return fmt.Sprintf("the database %s is empty: %s", e.Where, known)
	case Older:
		what := fmt.Sprintf("the database %s is an older copy, of generation %d", e.Where, e.Found.Generation)
		if e.Kind == File {
			what += ", or has lost its write-ahead log (the file that ends in -wal)"
		}
		return what + ": " + known
	case Foreign:
		return fmt.Sprintf("the database %s belongs to another installation, %s: %s", e.Where, e.Found.ID, known)
	}
	return fmt.Sprintf("the database %s is damaged or no database (%v)", e.Where, e.Found.Damage)
}

type wayOut struct{ what, command string }

func (e *LostError) waysOut() (ways []wayOut) {
	add := func(what, command string) { ways = append(ways, wayOut{what, command}) }
	switch e.Kind {
	case File:
		add("Restore a backup, or a copy of the file:", "sky api restore FILE")
	case PostgreSQL:
		switch e.Loss {
		case Foreign:
			add("Name the right database (db: in ~/.sky/config.yaml, or SKYPILOT_DB_CONNECTION_URI), and start again:", "sky api start")
		default:
			add("Restore a dump of the database (docs/administrators.md), and start again:", "sky api start")
		}
	}
	if e.Loss.Acceptable() {
		what := "Go on with this older copy, and take back the machines that it does not know:"
		if e.Loss == Foreign {
			what = "Go on with that other installation; machines of this one are not found any more:"
		}
		command := "sky api start --accept-database"
		if e.Loss == Older {
			command += " && sky sweep --adopt"
		}
		add(what, command)
	}
	if e.Renewable() {
		what := "Start anew; the files are kept aside, and machines that run are taken back by their tags:"
		if e.Kind == PostgreSQL {
			what = "Start anew in this database; machines that run are taken back by their tags:"
		}
		command := "sky api start --start-anew && sky sweep --adopt"
		if e.Trace != "" {
			what = "Start anew under another id; look in your clouds for machines with the tag " + cloud.TagInstallation + ", which nobody finds any more:"
			command = "sky api start --start-anew"
		}
		add(what, command)
	}
	return ways
}
