package api

// Sizes are how many bytes an API server's files take. What several servers share
// in PostgreSQL is part of the database.
type Sizes struct {
	Database  int64 `json:"database"`
	WAL       int64 `json:"wal"`        // write-ahead log of the database; 0 for PostgreSQL
	Uploads   int64 `json:"uploads"`    // files of users
	Logs      int64 `json:"logs"`       // of requests and managed jobs, and those gathered for downloads
	ServerLog int64 `json:"server_log"` // the server's own
}
