package cloud

import "context"

// CredentialCarrier is a provider whose credentials can be taken to another
// machine. Others can be used only where they are.
type CredentialCarrier interface {
	// CarryCredentials returns the files that make another machine reach the same
	// account: contents by their path below the home folder, with slashes. An
	// error says why the credentials in use cannot be taken elsewhere.
	CarryCredentials(ctx context.Context) (map[string][]byte, error)
}
