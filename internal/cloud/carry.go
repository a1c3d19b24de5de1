package cloud

import (
	"context"
	"time"
)

// CredentialCarrier is a provider whose credentials can be taken to another
// machine. Others can be used only where they are.
type CredentialCarrier interface {
	// CarryCredentials returns the files that make another machine reach the same
	// account: contents by their path below the home folder, with slashes. An
	// error says why the credentials in use cannot be taken elsewhere.
	CarryCredentials(ctx context.Context) (map[string][]byte, error)
}

// CredentialLender is a provider that can lend credentials which expire to machines that
// get new ones in time.
type CredentialLender interface {
	// LendCredentials is CarryCredentials for such a machine. The files are the same until
	// new ones are due; they expire at until, or never if that is zero.
	LendCredentials(ctx context.Context) (files map[string][]byte, until time.Time, err error)
}
