package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

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

// Recipes lists the task files that the server keeps.
func (c *Client) Recipes(ctx context.Context, b api.RecipeListBody) (*Request[[]Recipe], error) {
	b.Envelope = c.envelope()
	return post[[]Recipe](ctx, c, "/recipes/list", b)
}

// Recipe fetches a recipe; nil if there is none of that name.
func (c *Client) Recipe(ctx context.Context, name string) (*Request[*Recipe], error) {
	return c.recipe(ctx, "get", api.RecipeBody{RecipeName: name})
}

// CreateRecipe keeps a task file on the server.
func (c *Client) CreateRecipe(ctx context.Context, b api.RecipeCreateBody) (*Request[*Recipe], error) {
	b.Envelope = c.envelope()
	return post[*Recipe](ctx, c, "/recipes/create", b)
}

// UpdateRecipe changes a recipe's description or content.
func (c *Client) UpdateRecipe(ctx context.Context, b api.RecipeBody) (*Request[*Recipe], error) {
	return c.recipe(ctx, "update", b)
}

// PinRecipe puts a recipe before the others, or back among them.
func (c *Client) PinRecipe(ctx context.Context, name string, pinned bool) (*Request[*Recipe], error) {
	return c.recipe(ctx, "pin", api.RecipeBody{RecipeName: name, Pinned: &pinned})
}

func (c *Client) recipe(ctx context.Context, verb string, b api.RecipeBody) (*Request[*Recipe], error) {
	b.Envelope = c.envelope()
	return post[*Recipe](ctx, c, "/recipes/"+verb, b)
}

// DeleteRecipe forgets a recipe; the result says whether there was one.
func (c *Client) DeleteRecipe(ctx context.Context, name string) (*Request[bool], error) {
	return post[bool](ctx, c, "/recipes/delete", api.RecipeBody{Envelope: c.envelope(), RecipeName: name})
}
