package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/envelope"
)

// giveUp is [Store.GiveUp] of one value. What it did before does no harm again.
func (s *Store) giveUp(w *session, at envelope.Place, why string) error {
	now := s.Now()
	switch at.Table {
	case "requests":
		if _, err := w.exec("UPDATE requests SET "+at.Column+" = NULL WHERE id = ?", at.Row); err != nil {
			return err
		}
		if at.Column != "body" && at.Column != "state" {
			return nil
		}
		record, err := json.Marshal(api.ErrorRecord{Type: api.ErrRuntime, Message: why})
		if err != nil {
			return err
		}
		_, err = w.exec("UPDATE requests SET status = 'FAILED', error = ?, finished_at = ?, status_msg = '' WHERE id = ? AND "+active,
			s.in("requests", &at.Row, "error").bytes(&record), nanos(now), at.Row)
		return err
	case "managed_jobs":
		return s.giveUpJob(w, at, why)
	case "managed_schedules":
		_, err := w.exec("UPDATE managed_schedules SET job = 'null', ended_at = CASE WHEN ended_at = 0 THEN ? ELSE ended_at END, version = version + 1 WHERE CAST(id AS TEXT) = ?", nanos(now), at.Row)
		return err
	case "service_versions": // its replicas cannot be launched any more: the service ends
		if at.Column == "config" {
			_, err := w.exec("UPDATE service_versions SET config = NULL WHERE id = ?", at.Row)
			return err
		}
		if _, err := w.exec("UPDATE service_versions SET task = NULL WHERE id = ?", at.Row); err != nil {
			return err
		}
		_, err := w.exec("UPDATE services SET down_asked = ?, version = version + 1 WHERE hash IN (SELECT hash FROM service_versions WHERE id = ?)", true, at.Row)
		return err
	case "clusters":
		_, err := w.exec("UPDATE clusters SET certs = NULL, version = version + 1 WHERE hash = ?", at.Row)
		return err
	case "logins":
		_, err := w.exec("DELETE FROM logins WHERE challenge = ?", at.Row)
		return err
	case "settings":
		_, err := w.exec("DELETE FROM settings WHERE name = ?", at.Row)
		return err
	}
	return fmt.Errorf("state: nothing is encrypted in %s", at.Table)
}

// giveUpJob cancels a managed job whose tasks cannot be read. Something to read
// stands in their place, so that what it runs on is given back as always.
func (s *Store) giveUpJob(w *session, at envelope.Place, why string) error {
	id, err := strconv.Atoi(at.Row)
	if err != nil {
		return err
	}
	if at.Column == "config" {
		if _, err := w.exec("UPDATE managed_jobs SET config = NULL WHERE id = ?", id); err != nil {
			return err
		}
	} else {
		dag, err := placeholders(w, id)
		if err == nil {
			_, err = w.exec("UPDATE managed_jobs SET dag = ? WHERE id = ?", s.inNumbered("managed_jobs", &id, "dag").bytes(&dag), id)
		}
		if err != nil {
			return err
		}
	}
	t := s.ManagedJobs()
	now := s.Now()
	err = t.askCancel(w, id, fromNanos(0), now, endedDags())
	if errors.Is(err, ErrNotFound) { // it had ended
		return nil
	}
	if err != nil {
		return err
	}
	return addManagedEvent(w, ManagedEvent{JobID: id, Status: api.ManagedCancelling, Code: "SECRETS_LOST", Reason: why, At: now})
}

// placeholders is tasks with the names of a job's, which do nothing.
func placeholders(w *session, id int) ([]byte, error) {
	names, err := all(w, func(name *string) []any { return []any{text(name)} }, "SELECT name FROM managed_tasks WHERE job_id = ? ORDER BY task", id)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("name: null\n")
	for _, name := range names {
		fmt.Fprintf(&b, "---\nname: %s\nrun: exit 1\n", strconv.Quote(*name))
	}
	return []byte(b.String()), nil
}
