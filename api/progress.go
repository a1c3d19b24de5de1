package api

// TransferProgress is how far an upload, a copy or a deletion of a bucket is, or the copy of
// a task's files to nodes.
type TransferProgress struct {
	Operation  string   `json:"operation"` // upload, transfer (between buckets), copy (of a bucket to nodes), delete, or sync (of the task's files to nodes)
	What       string   `json:"what"`      // for people
	Files      int64    `json:"files"`     // objects, where they are deleted
	Bytes      int64    `json:"bytes"`
	TotalFiles int64    `json:"total_files"` // seen so far
	TotalBytes int64    `json:"total_bytes"`
	Counted    bool     `json:"counted"`                // the totals are final
	Rate       float64  `json:"bytes_per_second"`       // of the last seconds
	FileRate   float64  `json:"files_per_second"`       //
	Left       *float64 `json:"seconds_left,omitempty"` // nil: unknown
}
