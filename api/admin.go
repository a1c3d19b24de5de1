package api

// Bodies of the verbs about users, tokens, workspaces, recipes and support.

// UserWorkspaceBody sets the caller's preferred workspace. It has no envelope.
type UserWorkspaceBody struct {
	Preferred *string `json:"preferred"`
}

// WorkspaceBody creates, changes or deletes a workspace.
type WorkspaceBody struct {
	Envelope
	WorkspaceName string         `json:"workspace_name"`
	Config        map[string]any `json:"config"`
}

// WorkspaceUsersBody adds users to workspaces or removes them.
type WorkspaceUsersBody struct {
	Envelope
	WorkspaceNames []string `json:"workspace_names"`
	UserIDs        []string `json:"user_ids"`
}

// WorkspacesChanged tells of which workspaces the users were changed.
type WorkspacesChanged struct {
	Succeeded []string              `json:"succeeded"`
	Failed    []WorkspaceNotChanged `json:"failed"`
}

// WorkspaceNotChanged says why a workspace stayed as it is.
type WorkspaceNotChanged struct {
	WorkspaceName string `json:"workspace_name"`
	Error         string `json:"error"`
}

// ConfigBody replaces the server's configuration.
type ConfigBody struct {
	Envelope
	Config map[string]any `json:"config"`
}

// RecipeListBody selects recipes.
type RecipeListBody struct {
	Envelope
	PinnedOnly    bool    `json:"pinned_only"`
	MyRecipesOnly bool    `json:"my_recipes_only"`
	RecipeType    *string `json:"recipe_type"` // cluster, job, pool, volume
}

// RecipeBody names a recipe and what to change about it.
type RecipeBody struct {
	Envelope
	RecipeName  string  `json:"recipe_name"`
	Description *string `json:"description"`
	Content     *string `json:"content"`
	Pinned      *bool   `json:"pinned"`
}

// RecipeCreateBody stores a recipe.
type RecipeCreateBody struct {
	Envelope
	Name        string  `json:"name"`
	Content     string  `json:"content"`
	RecipeType  string  `json:"recipe_type"`
	Description *string `json:"description"`
	OwnerName   *string `json:"owner_name"`
}

// BackupBody says what a backup of the server holds besides its database.
type BackupBody struct {
	Envelope
	WithKeys bool `json:"with_keys"` // the keys that the content needs
}

// DebugDumpBody says what a support archive is about.
type DebugDumpBody struct {
	Envelope
	RequestIDs    []string       `json:"request_ids"`
	ClusterNames  []string       `json:"cluster_names"`
	ManagedJobIDs []int          `json:"managed_job_ids"`
	RecentMinutes *float64       `json:"recent_minutes"`
	ClientInfo    map[string]any `json:"client_info"`
}

// Recipe is a task file that the server keeps.
type Recipe struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Content     string `json:"content"`
	Type        string `json:"recipe_type"` // cluster, job, pool, volume
	Pinned      bool   `json:"pinned"`
	UserID      string `json:"user_id"`
	UserName    string `json:"user_name"`
	Editable    bool   `json:"is_editable"`
	Pinnable    bool   `json:"is_pinnable"`
}

// Plugin is an addition to the server's pages.
type Plugin struct {
	Name    string `json:"name"`
	Path    string `json:"js_extension_path"`
	Early   bool   `json:"requires_early_init"`
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

// Plugins are all of them.
type Plugins struct {
	Plugins []Plugin `json:"plugins"`
}
