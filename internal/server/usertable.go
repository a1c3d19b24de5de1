package server

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// userTable are the columns of tables of users.
var userTable = []string{"username", "password", "role"}

// importUsers adds the users of a table; rows that are wrong are told and do not
// keep the others out.
func (s *Server) importUsers(w http.ResponseWriter, r *http.Request) {
	b, _, ok := decode[api.UsersImportBody](s, w, r)
	if !ok {
		return
	}
	rows, problems, err := readUsers(b.CSVContent)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	out := api.UsersImported{ParseErrors: problems, CreationErrors: []string{}}
	for _, row := range rows {
		role := row[2]
		if role == "" {
			role = s.Rules().role()
		}
		if err := s.addUser(r.Context(), row[0], row[1], role, true); err != nil {
			out.CreationErrors = append(out.CreationErrors, row[0]+": "+err.Error())
			continue
		}
		out.SuccessCount++
	}
	out.ErrorCount = len(out.ParseErrors) + len(out.CreationErrors)
	out.TotalProcessed = out.SuccessCount + out.ErrorCount
	writeJSON(w, http.StatusOK, out)
}

// readUsers reads a table: name, password and role of each row, and what is
// wrong with the rows that are left out.
func readUsers(text string) (rows [][3]string, problems []string, err error) {
	problems = []string{}
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	in.FieldsPerRecord = -1
	in.TrimLeadingSpace = true
	head, err := in.Read()
	if err != nil {
		return nil, nil, errors.New("the table is empty or no CSV; it begins with: username,password,role")
	}
	at := map[string]int{}
	for i, name := range head {
		at[strings.ToLower(strings.TrimSpace(name))] = i
	}
	for _, name := range userTable[:2] {
		if _, there := at[name]; !there {
			return nil, nil, fmt.Errorf("the table has no column %s; it begins with: username,password,role", name)
		}
	}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, problems, nil
		}
		if err != nil {
			problems = append(problems, err.Error())
			if bad, ok := errors.AsType[*csv.ParseError](err); !ok || bad.Err != csv.ErrQuote && bad.Err != csv.ErrBareQuote {
				return rows, problems, nil
			}
			continue
		}
		var row [3]string
		for i, name := range userTable {
			if col, there := at[name]; there && col < len(record) {
				row[i] = strings.TrimSpace(record[col])
			}
		}
		if row[0] == "" || row[1] == "" {
			line, _ := in.FieldPos(0)
			problems = append(problems, fmt.Sprintf("line %d: username and password are required", line))
			continue
		}
		row[2] = strings.ToLower(row[2])
		rows = append(rows, row)
	}
}

// exportUsers writes such a table, with hashes for passwords.
func (s *Server) exportUsers(w http.ResponseWriter, r *http.Request) {
	list, err := s.Store.Users().Credentials(r.Context())
	if err != nil {
		s.failed(w, r, err)
		return
	}
	var b strings.Builder
	out := csv.NewWriter(&b)
	_ = out.Write(userTable)
	for _, c := range list {
		_ = out.Write([]string{c.Name, c.Hash, c.Role})
	}
	out.Flush()
	writeJSON(w, http.StatusOK, api.UsersExport{CSVContent: b.String(), UserCount: len(list)})
}
