package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cli/format"
	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/table"
)

func (a *app) tokensCommand() *cobra.Command {
	return a.build(command{
		name: "tokens", example: "sky tokens create ci --expires-in-days 90\nsky tokens list", short: "Manage service accounts: tokens that programs log in with.",
		group: []*cobra.Command{a.tokensListCommand(), a.tokensCreateCommand(), a.tokensRoleCommand(), a.tokensRotateCommand(), a.tokensRevokeCommand()},
	})
}

func (a *app) tokensListCommand() *cobra.Command {
	return a.build(command{
		name: "list", short: "List your tokens; administrators see all.", noConfig: true,
		example: "sky tokens list\nsky tokens list -o json",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			list, err := c.Tokens(ctx)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(list)); done {
				return err
			}
			if len(list) == 0 {
				if h := a.health; h != nil && !h.BasicAuthEnabled && !h.ServiceAccountTokenEnabled && !h.IngressBasicAuthEnabled && !h.ExternalProxyAuthEnabled {
					a.t.Println("No tokens: this server has no logins, so programs need none.")
					return nil
				}
				a.t.Println("No tokens. Make one with: sky tokens create NAME")
				return nil
			}
			a.t.Print(a.t.Table(tokensTable(a.t, list, a.now())))
			return nil
		},
	})
}

func tokensTable(t *term.Term, list []api.ServiceToken, now time.Time) *table.Table {
	tab := table.New("NAME", "ID", "ROLE", "MADE BY", "CREATED", "LAST USED", "EXPIRES").Whole("NAME", "ID").Optional("MADE BY", "CREATED", "LAST USED")
	for _, k := range list {
		used := "never"
		if k.LastUsedAt != nil {
			used = format.Ago(float64(*k.LastUsedAt), now)
		}
		tab.Add(k.TokenName, k.TokenID, strings.Join(k.ServiceAccountRoles, ", "), k.CreatorName, format.Ago(float64(k.CreatedAt), now), used, expiry(t, k.ExpiresAt, now))
	}
	return tab
}

// tokenNamed finds a token by its id, the beginning of it, or its name if only
// one has it.
func tokenNamed(ctx context.Context, c *sky.Client, name string) (api.ServiceToken, error) {
	list, err := c.Tokens(ctx)
	if err != nil {
		return api.ServiceToken{}, err
	}
	var found []api.ServiceToken
	var names []string
	for _, k := range list {
		if k.TokenID == name {
			return k, nil
		}
		if k.TokenName == name || len(name) >= 4 && strings.HasPrefix(k.TokenID, name) {
			found = append(found, k)
		}
		names = append(names, k.TokenName)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return api.ServiceToken{}, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is no token '%s' that you may manage.%s", name, didYouMean(similar.Names(name, names)))}
	}
	return api.ServiceToken{}, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%d tokens are called '%s': name one by its id (sky tokens list).", len(found), name)}
}

func (a *app) tokensCreateCommand() *cobra.Command {
	var days *int
	var role string
	return a.build(command{
		name: "create", args: "NAME", short: "Make a service account and print its token, this once.", min: 1, max: 1, noConfig: true,
		long:    "The account may do what you may, unless --role says less. Only the token is printed to standard output.",
		example: "sky tokens create ci --expires-in-days 90 > token\nsky tokens create reports --role viewer",
		flags: func(f flags) {
			f.number(&days, "expires-in-days", "", "Days until it ends; 0 and nothing mean never.")
			f.choice(&role, "role", "", "What the account may do; without it, what you may.", roleNames...)
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			k, err := c.CreateToken(ctx, api.TokenCreateBody{TokenName: args[0], ExpiresInDays: days})
			if err != nil {
				return err
			}
			if role != "" {
				if err := c.SetTokenRole(ctx, k.TokenID, role); err != nil {
					_ = c.DeleteToken(ctx, k.TokenID) // it must not be more than was asked for
					return err
				}
			}
			return a.tellToken(k)
		},
	})
}

// tellToken shows a new token: alone where a program reads it.
func (a *app) tellToken(k api.NewToken) error {
	if done, err := a.emit(k); done {
		return err
	}
	a.t.Println(k.Token)
	a.t.Note("%s It expires: %s.", k.Message, expiry(a.t, k.ExpiresAt, a.now()))
	return nil
}

func (a *app) tokensRoleCommand() *cobra.Command {
	return a.build(command{
		name: "set-role", args: "TOKEN ROLE", short: "Change what a service account may do.", min: 2, max: 2, noConfig: true,
		example: "sky tokens set-role ci viewer",
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withToken(ctx, args[0], func(c *sky.Client, k api.ServiceToken) error {
				role := strings.ToLower(args[1])
				if err := c.SetTokenRole(ctx, k.TokenID, role); err != nil {
					return err
				}
				a.t.Printf("The service account of token '%s' is %s now.\n", k.TokenName, role)
				return nil
			})
		},
	})
}

func (a *app) tokensRotateCommand() *cobra.Command {
	var days *int
	return a.build(command{
		name: "rotate", args: "TOKEN", short: "Put a new token in the place of an old one, which ends at once.", min: 1, max: 1, noConfig: true,
		example: "sky tokens rotate ci --expires-in-days 90",
		flags: func(f flags) {
			f.number(&days, "expires-in-days", "", "Days until the new one ends; 0 means never, nothing when the old one would have.")
			f.out(a)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withToken(ctx, args[0], func(c *sky.Client, k api.ServiceToken) error {
				fresh, err := c.RotateToken(ctx, api.TokenRotateBody{TokenID: k.TokenID, ExpiresInDays: days})
				if err != nil {
					return err
				}
				return a.tellToken(fresh)
			})
		},
	})
}

func (a *app) tokensRevokeCommand() *cobra.Command {
	var yes bool
	return a.build(command{
		name: "revoke", args: "TOKEN", short: "End a token and its service account.", min: 1, max: 1, noConfig: true,
		example: "sky tokens revoke ci",
		flags:   func(f flags) { f.yes(&yes) },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withToken(ctx, args[0], func(c *sky.Client, k api.ServiceToken) error {
				if !yes {
					if err := a.t.Confirm(ctx, fmt.Sprintf("Revoking token '%s' (%s): programs that use it are refused from now on. Proceed?", k.TokenName, k.TokenID), false); err != nil {
						return err
					}
				}
				if err := c.DeleteToken(ctx, k.TokenID); err != nil {
					return err
				}
				a.t.Printf("Token '%s' revoked.\n", k.TokenName)
				return nil
			})
		},
	})
}

func (a *app) withToken(ctx context.Context, name string, do func(*sky.Client, api.ServiceToken) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	k, err := tokenNamed(ctx, c, name)
	if err != nil {
		return err
	}
	return do(c, k)
}
