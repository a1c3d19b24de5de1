package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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

func (a *app) usersCommand() *cobra.Command {
	return a.build(command{
		name: "users", example: "sky users list\nsky users set-role ada admin", short: "Manage the users of an API server and their roles.",
		group: []*cobra.Command{a.usersListCommand(), a.usersCreateCommand(), a.usersRoleCommand(), a.usersPasswordCommand(),
			a.usersDeleteCommand(), a.usersImportCommand(), a.usersExportCommand()},
	})
}

// roleNames are the roles, the one that may most first.
var roleNames = []string{"admin", "user", "viewer"}

func (a *app) usersListCommand() *cobra.Command {
	return a.build(command{
		name: "list", short: "List the users of the API server.", noConfig: true,
		example: "sky users list\nsky users list -o json",
		flags:   func(f flags) { f.out(a) },
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			users, err := c.Users(ctx)
			if err != nil {
				return err
			}
			if done, err := a.emit(nonNil(users)); done {
				return err
			}
			a.t.Print(a.t.Table(usersTable(users, a.now())))
			return nil
		},
	})
}

func usersTable(users []api.UserRecord, now time.Time) *table.Table {
	tab := table.New("NAME", "ID", "ROLE", "LOGIN", "SINCE").Whole("NAME", "ID").Optional("SINCE", "LOGIN")
	for _, u := range users {
		since, login := "-", "-"
		if u.CreatedAt != nil {
			since = format.Ago(*u.CreatedAt, now)
		}
		if u.UserType != nil {
			login = *u.UserType
		}
		tab.Add(u.Name, u.ID, u.Role, login, since)
	}
	return tab
}

func (a *app) usersCreateCommand() *cobra.Command {
	var role string
	return a.build(command{
		name: "create", args: "NAME", short: "Add a user who logs in with a password.", min: 1, max: 1, noConfig: true,
		long:    "The password is asked for, or read from the first line of standard input.",
		example: "sky users create ada --role admin\npass show sky/ada | sky users create ada",
		flags: func(f flags) {
			f.choice(&role, "role", "", "What they may do; without it, the server's default.", roleNames...)
		},
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			password, err := a.password("Password of " + args[0])
			if err != nil {
				return err
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			b := api.UserCreateBody{Username: args[0], Password: password}
			if role != "" {
				b.Role = &role
			}
			if err := c.CreateUser(ctx, b); err != nil {
				return err
			}
			a.t.Printf("User '%s' created.\n", args[0])
			return nil
		},
	})
}

// password asks for one, or reads the first line of what is no terminal.
func (a *app) password(question string) (string, error) {
	var p string
	var err error
	if a.t.InTTY {
		p, err = a.t.ReadSecret(question + ": ")
	} else {
		p, err = bufio.NewReader(a.t.In).ReadString('\n')
		if p = strings.TrimRight(p, "\r\n"); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err == nil && strings.TrimSpace(p) == "" {
		err = usagef("The password is empty.")
	}
	return p, err
}

// userNamed finds a user by id or name.
func userNamed(ctx context.Context, c *sky.Client, name string) (api.UserRecord, error) {
	users, err := c.Users(ctx)
	if err != nil {
		return api.UserRecord{}, err
	}
	var names []string
	for _, u := range users {
		if u.ID == name || u.Name == name {
			return u, nil
		}
		names = append(names, u.Name)
	}
	return api.UserRecord{}, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is no user '%s' on this API server.%s", name, didYouMean(similar.Names(name, names)))}
}

func (a *app) usersRoleCommand() *cobra.Command {
	return a.build(command{
		name: "set-role", args: "USER... ROLE", short: "Change what users may do.", min: 2, max: -1, noConfig: true,
		example: "sky users set-role ada admin\nsky users set-role bob eve viewer",
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			role := strings.ToLower(args[len(args)-1])
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			var ids []string
			names := map[string]string{}
			for _, name := range args[:len(args)-1] {
				u, err := userNamed(ctx, c, name)
				if err != nil {
					return err
				}
				ids, names[u.ID] = append(ids, u.ID), u.Name
			}
			out, err := c.SetRoles(ctx, ids, role)
			if err != nil {
				return err
			}
			for _, id := range out.Succeeded {
				a.t.Printf("User '%s' is %s now.\n", names[id], role)
			}
			for _, f := range out.Failed {
				a.t.Note("User '%s' stays as they are: %s", names[f.UserID], f.Error)
			}
			if len(out.Failed) > 0 {
				return exitError(1)
			}
			return nil
		},
	})
}

func (a *app) usersPasswordCommand() *cobra.Command {
	return a.build(command{
		name: "set-password", args: "[USER]", short: "Change a password; without USER, your own.", max: 1, noConfig: true,
		example: "sky users set-password\nsky users set-password ada",
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			_, who, err := c.Role(ctx)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				u, err := userNamed(ctx, c, args[0])
				if err != nil {
					return err
				}
				who = api.User{ID: u.ID, Name: u.Name}
			}
			if who.ID == "" {
				return usagef("Nobody is logged in on this API server: say whose password to change.")
			}
			password, err := a.password("New password of " + who.Name)
			if err != nil {
				return err
			}
			if err := c.UpdateUser(ctx, api.UserUpdateBody{UserID: who.ID, Password: &password}); err != nil {
				return err
			}
			a.t.Printf("The password of '%s' is changed.\n", who.Name)
			return nil
		},
	})
}

func (a *app) usersDeleteCommand() *cobra.Command {
	var yes bool
	return a.build(command{
		name: "delete", args: "USER", short: "Forget a user who has nothing left, and the service accounts that they made.", min: 1, max: 1, noConfig: true,
		example: "sky users delete bob",
		flags:   func(f flags) { f.yes(&yes) },
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			u, err := userNamed(ctx, c, args[0])
			if err != nil {
				return err
			}
			if !yes {
				if err := a.t.Confirm(ctx, fmt.Sprintf("Deleting user '%s' (%s) and their service accounts. Proceed?", u.Name, u.ID), false); err != nil {
					return err
				}
			}
			if err := c.DeleteUser(ctx, u.ID); err != nil {
				return err
			}
			a.t.Printf("User '%s' deleted.\n", u.Name)
			return nil
		},
	})
}

func (a *app) usersImportCommand() *cobra.Command {
	return a.build(command{
		name: "import", args: "FILE", short: "Add the users of a CSV table: username,password,role.", min: 1, max: 1, noConfig: true,
		example: "sky users import users.csv",
		long:    "A password may be given as its hash, as an export or htpasswd writes it. Rows that are wrong are told and do not keep the others out.",
		run: func(ctx context.Context, _ *cobra.Command, args []string) error {
			text, err := os.ReadFile(expandHome(args[0], a.home))
			if err != nil {
				return fmt.Errorf("reading the users: %w", err)
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			out, err := c.ImportUsers(ctx, string(text))
			if err != nil {
				return err
			}
			for _, problem := range append(out.ParseErrors, out.CreationErrors...) {
				a.t.Note("Not added: %s", problem)
			}
			a.t.Printf("%d of %d users added.\n", out.SuccessCount, out.TotalProcessed)
			if out.ErrorCount > 0 {
				return exitError(1)
			}
			return nil
		},
	})
}

func (a *app) usersExportCommand() *cobra.Command {
	return a.build(command{
		name: "export", short: "Print all users as a CSV table, with the hashes of their passwords.", noConfig: true,
		example: "sky users export > users.csv",
		run: func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			out, err := c.ExportUsers(ctx)
			if err != nil {
				return err
			}
			a.t.Print(out.CSVContent)
			return nil
		},
	})
}

// expiry shows when a token ends.
func expiry(t *term.Term, at *int64, now time.Time) string {
	switch {
	case at == nil:
		return "never"
	case *at <= now.Unix():
		return t.Style(term.Red, "expired")
	}
	return time.Unix(*at, 0).In(now.Location()).Format("2006-01-02 15:04")
}
