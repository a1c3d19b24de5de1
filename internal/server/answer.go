package server

import (
	"encoding/json"
	"net/http"
)

// detail is the form of every plain failure.
type detail struct {
	Detail any `json:"detail"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"detail":"The answer could not be written as JSON."}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// fail answers with {"detail": what}.
func fail(w http.ResponseWriter, status int, what string) {
	writeJSON(w, status, detail{what})
}

func failProblems(w http.ResponseWriter, p []problem) {
	writeJSON(w, http.StatusUnprocessableEntity, detail{p})
}
