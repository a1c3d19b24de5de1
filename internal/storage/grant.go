package storage

import (
	"context"
	"log/slog"
	"time"
)

// A Grant is what a program on another machine needs to open a bucket: where it is, and
// credentials. It holds secrets: it is sent over encrypted connections and kept in memory
// only.
type Grant struct {
	Store    Store  `json:"store"`
	Account  string `json:"account,omitempty"` // Azure's storage account
	Region   string `json:"region,omitempty"`
	Bucket   string `json:"bucket"`
	Revision string `json:"revision,omitempty"`
	// Endpoint is the server that answers in place of the store's own one.
	Endpoint string `json:"endpoint,omitempty"`

	// Of the following, what the store takes; nothing for what is public.
	AccessKey    string `json:"access_key,omitempty"` // the family of S3
	SecretKey    string `json:"secret_key,omitempty"`
	SessionToken string `json:"session_token,omitempty"`
	Token        string `json:"token,omitempty"` // bearer token
	Key          string `json:"key,omitempty"`   // of Azure's account
	SAS          string `json:"sas,omitempty"`

	Expires time.Time `json:"expires,omitzero"`  // zero: never
	Whose   string    `json:"whose,omitempty"`   // the credentials, for messages
	Lasting bool      `json:"lasting,omitempty"` // they do not run out by themselves
}

// Location names the bucket.
func (g Grant) Location() Location {
	return Location{Store: g.Store, Account: g.Account, Region: g.Region, Bucket: g.Bucket, Revision: g.Revision}
}

// GrantTo is a grant without credentials yet.
func GrantTo(at Location, endpoint string) Grant {
	return Grant{Store: at.Store, Account: at.Account, Region: at.Region, Bucket: at.Bucket, Revision: at.Revision, Endpoint: endpoint}
}

// LogValue leaves the secrets out.
func (g Grant) LogValue() slog.Value {
	return slog.GroupValue(slog.String("bucket", g.Location().String()), slog.String("whose", g.Whose))
}

// String leaves the secrets out.
func (g Grant) String() string { return g.Location().String() + " [redacted]" }

// GoString leaves the secrets out.
func (g Grant) GoString() string { return g.String() }

// A Granter is a bucket whose credentials can be handed to a program on another machine.
type Granter interface {
	// Grant is what opens the bucket as the caller opens it. It may ask for a token.
	Grant(ctx context.Context) (Grant, error)
}
