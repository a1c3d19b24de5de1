package api

// Users, tokens of service accounts, and the audit log.

// UserRecord is a row of /users.
type UserRecord struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	CreatedAt *float64 `json:"created_at"` // Unix seconds
	Role      string   `json:"role"`
	UserType  *string  `json:"user_type"`
}

// UserRole says what a caller may do: admin, user or viewer.
type UserRole struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Role string `json:"role"`
}

// UserCreateBody adds a user who logs in with a password.
type UserCreateBody struct {
	Username string  `json:"username"`
	Password string  `json:"password"`
	Role     *string `json:"role"`
}

// UserUpdateBody changes a user's role or password.
type UserUpdateBody struct {
	UserID   string  `json:"user_id"`
	Role     *string `json:"role"`
	Password *string `json:"password"`
}

// UserDeleteBody removes a user.
type UserDeleteBody struct {
	UserID string `json:"user_id"`
}

// UsersUpdateBody gives several users one role.
type UsersUpdateBody struct {
	UserIDs []string `json:"user_ids"`
	Role    string   `json:"role"`
}

// UsersUpdated says for which users a change was made.
type UsersUpdated struct {
	Succeeded []string       `json:"succeeded"`
	Failed    []UserNotMoved `json:"failed"`
}

// UserNotMoved says why a change was not made.
type UserNotMoved struct {
	UserID string `json:"user_id"`
	Error  string `json:"error"`
}

// UsersImportBody adds the users of a table with the columns username, password
// and role. A password may be given as its hash.
type UsersImportBody struct {
	CSVContent string `json:"csv_content"`
}

// UsersImported says what became of the rows of such a table.
type UsersImported struct {
	SuccessCount   int      `json:"success_count"`
	ErrorCount     int      `json:"error_count"`
	TotalProcessed int      `json:"total_processed"`
	ParseErrors    []string `json:"parse_errors"`
	CreationErrors []string `json:"creation_errors"`
}

// UsersExport is such a table, with hashes for passwords.
type UsersExport struct {
	CSVContent string `json:"csv_content"`
	UserCount  int    `json:"user_count"`
}

// WorkspaceChoice says which workspace a call of this user lands in, and why.
type WorkspaceChoice struct {
	Workspace *string `json:"workspace"`
	// Source is explicit, preferred, default-fallback, single-membership, ambiguous,
	// no-access or permission-denied.
	Source     string   `json:"source"`
	Note       *string  `json:"note"`
	Preferred  *string  `json:"preferred"`
	Accessible []string `json:"accessible"`
}

// ServiceToken is a token as lists show it. Times are Unix seconds.
type ServiceToken struct {
	TokenID              string   `json:"token_id"`
	TokenName            string   `json:"token_name"`
	CreatedAt            int64    `json:"created_at"`
	LastUsedAt           *int64   `json:"last_used_at"`
	ExpiresAt            *int64   `json:"expires_at"`
	CreatorUserHash      string   `json:"creator_user_hash"`
	CreatorName          string   `json:"creator_name"`
	ServiceAccountUserID string   `json:"service_account_user_id"`
	ServiceAccountName   string   `json:"service_account_name"`
	ServiceAccountRoles  []string `json:"service_account_roles"`
}

// TokenCreateBody makes a service account with a token.
type TokenCreateBody struct {
	TokenName     string `json:"token_name"`
	ExpiresInDays *int   `json:"expires_in_days"` // nil and 0: never
}

// TokenBody names a token, and what to change about it.
type TokenBody struct {
	TokenID string `json:"token_id"`
}

// TokenRoleBody changes the role of a service account.
type TokenRoleBody struct {
	TokenID string `json:"token_id"`
	Role    string `json:"role"`
}

// TokenRotateBody puts a new token in the place of an old one.
type TokenRotateBody struct {
	TokenID       string `json:"token_id"`
	ExpiresInDays *int   `json:"expires_in_days"` // nil: as before; 0: never
}

// NewToken tells a token, this once.
type NewToken struct {
	TokenID              string `json:"token_id"`
	TokenName            string `json:"token_name"`
	Token                string `json:"token"`
	ExpiresAt            *int64 `json:"expires_at"`
	ServiceAccountUserID string `json:"service_account_user_id"`
	CreatorUserID        string `json:"creator_user_id"`
	Message              string `json:"message"`
}

// TokenRoles are the roles of a token's service account.
type TokenRoles struct {
	TokenID              string   `json:"token_id"`
	ServiceAccountUserID string   `json:"service_account_user_id"`
	Roles                []string `json:"roles"`
}

// TokenRoleChanged says what became of a [TokenRoleBody].
type TokenRoleChanged struct {
	Message              string `json:"message"`
	TokenID              string `json:"token_id"`
	ServiceAccountUserID string `json:"service_account_user_id"`
	NewRole              string `json:"new_role"`
}

// Message is an answer for people.
type Message struct {
	Message string `json:"message"`
}

// AuthorizeBody agrees to a login that a command line waits for.
type AuthorizeBody struct {
	CodeChallenge string `json:"code_challenge"`
}

// AuditRecord is a change that somebody asked for.
type AuditRecord struct {
	ID       string  `json:"id"` // of the request
	At       float64 `json:"at"` // Unix seconds
	UserID   string  `json:"user_id"`
	UserName string  `json:"user_name"`
	Role     string  `json:"role"`  // "" without a login
	Login    string  `json:"login"` // how the caller was known; "" without a login
	Address  string  `json:"address"`
	Action   string  `json:"action"` // name of the request, or the path
	Method   string  `json:"method"`
	Path     string  `json:"path"`
	Cluster  string  `json:"cluster"`
	Command  string  `json:"command"`
	// Result is "" while it goes on, SUCCEEDED, FAILED, CANCELLED or DENIED.
	Result  string   `json:"result"`
	Detail  string   `json:"detail"`
	EndedAt *float64 `json:"ended_at"`
}
