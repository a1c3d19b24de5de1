package sshconn

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var accountName = lazyregexp.New(`^[a-z_][a-z0-9_.-]{0,31}$`)

// CheckAccount refuses what cannot be the name of somebody's Unix account, and root.
func CheckAccount(name string) error {
	if name == "root" {
		return fmt.Errorf("commands are not run as root for somebody else")
	}
	if !accountName.MatchString(name) {
		return fmt.Errorf("%.50q cannot be a Unix account: its name has up to 32 lower-case letters, digits, dots, hyphens and underscores, and begins with a letter or an underscore", name)
	}
	return nil
}

// accountShell is the one program that sudo is asked for, as sudoers files name it.
const accountShell = "/bin/sh"

// command is the command line for sshd to run. This is the only place where commands
// become another account's. sudo passes on nothing of the environment that reports how
// the host was reached, and does not leave the login's folder, which the account may not
// be allowed to read.
func (t Target) command(line string) string {
	if t.RunAs == "" || t.RunAs == t.login() {
		return line
	}
	return "sudo -n -H -u " + Quote(t.RunAs) + " -- " + accountShell + " -c " +
		Quote("SSH_CONNECTION=$1; export SSH_CONNECTION; cd && "+line) + ` sh "$SSH_CONNECTION"`
}

// login is the user who logs in.
func (t Target) login() string {
	if t.User == "" {
		return localUser()
	}
	return t.User
}

// A RunAsError means that a login works and may not run commands as another account.
type RunAsError struct {
	Host, Login, Account string
	Said                 string // by sudo
}

// saidMost is how much of what sudo said is repeated: it may be the whole command.
const saidMost = 200

func (e *RunAsError) Error() string {
	said := strings.ReplaceAll(strings.TrimSpace(e.Said), "\n", "; ")
	if len(said) > saidMost {
		said = said[:saidMost] + "…"
	}
	if said == "" {
		said = "nothing"
	}
	return fmt.Sprintf("%s does not let its login %s run commands as %s; it said: %s. To allow it, as root on that host: %s", e.Host, e.Login, e.Account, said, e.Allow())
}

// Allow is the shell command by which the host's administrator allows it.
func (e *RunAsError) Allow() string {
	// Files with a dot in their names do not count.
	file := "/etc/sudoers.d/sky-" + strings.ReplaceAll(e.Account, ".", "_")
	return fmt.Sprintf("echo %s | install -m 440 /dev/stdin %s",
		Quote(sudoersName(e.Login)+" ALL=("+e.Account+") NOPASSWD: "+accountShell), file)
}

// sudoersName escapes what has a meaning in sudoers, as in the names of a Windows domain.
func sudoersName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`\ ,:=!()"@#%`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
