package server

import (
	"context"
	"io"
	"net/http"

	"github.com/skypilot-go/sky/api"
)

// OwnMachines are the pools of machines of one's own, as a file on the server.
// They are an administrator's to change: a pool says by which command the server
// reaches a machine, and with which of its keys.
type OwnMachines interface {
	// Pools is what the file says, without passwords.
	Pools() (map[string]map[string]any, error)
	Set(ctx context.Context, pools map[string]map[string]any) error
	Remove(ctx context.Context, pool string) error
	Status(ctx context.Context, pool string) (api.SSHPoolStatus, error)
	KeyNames() ([]string, error)
	AddKey(name string, key []byte) (path string, err error)
}

// maxKey bounds a private key; the largest that are used have some 13 KiB.
const maxKey = 64 << 10

// ownMachines calls f if there is an [OwnMachines] to ask.
func ownMachines(f func(s *Server, w http.ResponseWriter, r *http.Request)) func(*Server, http.ResponseWriter, *http.Request) {
	return func(s *Server, w http.ResponseWriter, r *http.Request) {
		if s.OwnMachines == nil {
			s.notYet(w, r)
			return
		}
		f(s, w, r)
	}
}

func (s *Server) sshPools(w http.ResponseWriter, r *http.Request) {
	pools, err := s.OwnMachines.Pools()
	s.answered(w, r, pools, err)
}

func (s *Server) setSSHPools(w http.ResponseWriter, r *http.Request) {
	pools, _, ok := decode[map[string]map[string]any](s, w, r)
	if !ok {
		return
	}
	s.answered(w, r, map[string]string{"status": "success"}, s.OwnMachines.Set(r.Context(), pools))
}

func (s *Server) removeSSHPool(w http.ResponseWriter, r *http.Request) {
	s.answered(w, r, map[string]string{"status": "success"}, s.OwnMachines.Remove(r.Context(), r.PathValue("pool")))
}

func (s *Server) sshPoolStatus(w http.ResponseWriter, r *http.Request) {
	status, err := s.OwnMachines.Status(r.Context(), r.PathValue("pool"))
	s.answered(w, r, status, err)
}

func (s *Server) sshKeys(w http.ResponseWriter, r *http.Request) {
	names, err := s.OwnMachines.KeyNames()
	s.answered(w, r, names, err)
}

// addSSHKey takes a form with the field key_name and the file key_file.
func (s *Server) addSSHKey(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 2*maxKey)
	if err := r.ParseMultipartForm(2 * maxKey); err != nil {
		fail(w, http.StatusBadRequest, "A form with the field key_name and the file key_file is expected, of at most 64 KiB.")
		return
	}
	bodyRead(w)
	defer r.MultipartForm.RemoveAll()
	file, header, err := r.FormFile("key_file")
	if err != nil || header.Size > maxKey {
		fail(w, http.StatusBadRequest, "The form has no file key_file of at most 64 KiB.")
		return
	}
	defer file.Close()
	key, err := io.ReadAll(file)
	if err != nil {
		fail(w, http.StatusBadRequest, "The key could not be read.")
		return
	}
	path, err := s.OwnMachines.AddKey(r.FormValue("key_name"), key)
	s.answered(w, r, map[string]string{"status": "success", "key_path": path}, err)
}
