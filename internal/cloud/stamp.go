package cloud

// CredentialStamper is a provider that can tell one set of credentials from
// another, without any I/O but reading them. What was refused because of the
// credentials is not asked for again until the stamp changes.
type CredentialStamper interface {
	// CredentialStamp is a digest of the credentials in use; it reveals nothing
	// of them. "" means that it is unknown.
	CredentialStamp() string
}
