package sky

import (
	"context"

	"github.com/skypilot-go/sky/api"
)

// Recipes lists the task files that the server keeps.
func (c *Client) Recipes(ctx context.Context, b api.RecipeListBody) (*Request[[]api.Recipe], error) {
	b.Envelope = c.envelope()
	return post[[]api.Recipe](ctx, c, "/recipes/list", b)
}

// Recipe fetches a recipe; nil if there is none of that name.
func (c *Client) Recipe(ctx context.Context, name string) (*Request[*api.Recipe], error) {
	return c.recipe(ctx, "get", api.RecipeBody{RecipeName: name})
}

// CreateRecipe keeps a task file on the server.
func (c *Client) CreateRecipe(ctx context.Context, b api.RecipeCreateBody) (*Request[*api.Recipe], error) {
	b.Envelope = c.envelope()
	return post[*api.Recipe](ctx, c, "/recipes/create", b)
}

// UpdateRecipe changes a recipe's description or content.
func (c *Client) UpdateRecipe(ctx context.Context, b api.RecipeBody) (*Request[*api.Recipe], error) {
	return c.recipe(ctx, "update", b)
}

// PinRecipe puts a recipe before the others, or back among them.
func (c *Client) PinRecipe(ctx context.Context, name string, pinned bool) (*Request[*api.Recipe], error) {
	return c.recipe(ctx, "pin", api.RecipeBody{RecipeName: name, Pinned: &pinned})
}

func (c *Client) recipe(ctx context.Context, verb string, b api.RecipeBody) (*Request[*api.Recipe], error) {
	b.Envelope = c.envelope()
	return post[*api.Recipe](ctx, c, "/recipes/"+verb, b)
}

// DeleteRecipe forgets a recipe; the result says whether there was one.
func (c *Client) DeleteRecipe(ctx context.Context, name string) (*Request[bool], error) {
	return post[bool](ctx, c, "/recipes/delete", api.RecipeBody{Envelope: c.envelope(), RecipeName: name})
}
