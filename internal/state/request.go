package state

import (
	"time"

	"github.com/skypilot-go/sky/api"
)

// Request is an API call in flight, durable from before its id is told.
type Request struct {
	ID          string
	Name        string // "sky.launch"
	Status      api.RequestStatus
	Schedule    api.ScheduleType
	UserID      string
	UserName    string
	ClusterName string
	Workspace   string // "": the default one
	Scope       *Scope // what the caller may touch
	Files       *RequestFiles
	Body        []byte // JSON as received; secrets inside, so the column is never logged
	ReturnValue []byte // JSON; nil if none
	Error       []byte // JSON of api.ErrorRecord without Object; nil if none
	StatusMsg   string
	CreatedAt   time.Time
	StartedAt   time.Time
	FinishedAt  time.Time
	ClientAPI   int    // the caller's API version
	CancelAsked bool   // cancellation was requested; the owner has yet to act
	Attempt     int    // how often it was started; > 1 after a crash
	State       []byte // what the request's function keeps for its next attempt or replay; JSON

	// The lease of the server that runs it.
	OwnerID   string
	Heartbeat time.Time
}

// RequestFiles are the files that the tasks of a request may bring to nodes, as
// the server found when it accepted the request. Nil: it was accepted by a version
// that did not tell.
type RequestFiles struct {
	Own    bool   `json:"own,omitempty"`    // of the server's machine: it is the caller's
	Upload string `json:"upload,omitempty"` // of this upload of the caller
	Legacy bool   `json:"legacy,omitempty"` // of the caller's one folder for uploads, if there is no such id
}

// RequestFilter selects requests; zero fields select all.
type RequestFilter struct {
	IDPrefixes  []string
	Statuses    []api.RequestStatus
	UserID      string
	ClusterName string
	Names       []string
	Scope       *Scope // also those of the user it names, wherever they belong
	Limit       int    // 0: no limit
}

// User is a known caller.
type User struct {
	ID, Name           string
	Type               string // "", "basic", "sa", …
	Role               string // admin, user, viewer
	PreferredWorkspace string
	CreatedAt          time.Time
}
