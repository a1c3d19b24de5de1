package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// completer lists names that the server knows; errors count as none, and a
// server is not started for it.
func (a *app) completer(kind string) func(prefix string, args []string) []string {
	return func(prefix string, _ []string) []string {
		c, err := a.open()
		if err != nil {
			return nil
		}
		names, err := c.Complete(context.Background(), kind, prefix)
		if err != nil {
			return nil
		}
		return names
	}
}

func (a *app) completionCommand() *cobra.Command {
	return a.build(command{
		name: "completion", args: "bash|zsh|fish", short: "Print the completion script of a shell.", min: 1, max: 1, noConfig: true,
		long:    "`sky --install-shell-completion auto` installs it for you.",
		example: "source <(sky completion bash)",
		complete: func(string, []string) []string {
			return []string{"bash", "zsh", "fish"}
		},
		run: func(_ context.Context, cmd *cobra.Command, args []string) error {
			script, err := completionScript(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			a.t.Print(script)
			return nil
		},
	})
}

func completionScript(root *cobra.Command, shell string) (string, error) {
	var b bytes.Buffer
	var err error
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(&b, true)
	case "zsh":
		err = root.GenZshCompletion(&b)
		b.WriteString("compdef _sky sky\n")
	case "fish":
		err = root.GenFishCompletion(&b, true)
	default:
		return "", usagef("'%s' is not one of 'bash', 'zsh', 'fish'.", shell)
	}
	return b.String(), err
}

// completionHome is where a shell's completion goes: the script, and the file
// that must read it ("" if the shell finds the script by itself).
func completionHome(home, shell string) (script, rc string) {
	switch shell {
	case "fish":
		return filepath.Join(home, ".config", "fish", "completions", "sky.fish"), ""
	}
	return filepath.Join(home, ".sky", ".sky-complete."+shell), filepath.Join(home, "."+shell+"rc")
}

const completionTitle = "# For SkyPilot shell completion"

func (a *app) completionShell(shell string) (string, error) {
	if shell != "auto" {
		return shell, nil
	}
	switch s := filepath.Base(a.env("SHELL")); s {
	case "bash", "zsh", "fish":
		return s, nil
	}
	return "", usagef("Cannot auto-detect shell. Please specify shell explicitly.")
}

func (a *app) installCompletion(_ context.Context, shell string) error {
	shell, err := a.completionShell(shell)
	if err != nil {
		return err
	}
	text, err := completionScript(a.root(), shell)
	if err != nil {
		return err
	}
	script, rc := completionHome(a.home, shell)
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		return fmt.Errorf("installing completion: %w", err)
	}
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		return fmt.Errorf("installing completion: %w", err)
	}
	reload := rc
	if rc == "" {
		reload = script
	} else if err := addLines(rc, completionTitle, ". "+tilde(script, a.home)); err != nil {
		return fmt.Errorf("installing completion: %w", err)
	}
	a.t.Printf("Shell completion installed for %s\nCompletion will take effect once you restart the terminal: source %s\n", shell, tilde(reload, a.home))
	return nil
}

func (a *app) uninstallCompletion(shell string) error {
	shell, err := a.completionShell(shell)
	if err != nil {
		return err
	}
	script, rc := completionHome(a.home, shell)
	if err := os.Remove(script); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing completion: %w", err)
	}
	if rc != "" {
		if err := removeLines(rc, completionTitle, ". "+tilde(script, a.home)); err != nil {
			return fmt.Errorf("removing completion: %w", err)
		}
	}
	a.t.Printf("Shell completion uninstalled for %s\n", shell)
	return nil
}

func tilde(path, home string) string {
	if rest, ok := strings.CutPrefix(path, home); ok {
		return "~" + filepath.ToSlash(rest)
	}
	return path
}

// addLines appends lines to a file unless it speaks of SkyPilot already.
func addLines(path string, lines ...string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if bytes.Contains(old, []byte("SkyPilot")) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	text := strings.Join(lines, "\n") + "\n"
	if len(old) > 0 && old[len(old)-1] != '\n' {
		text = "\n" + text
	}
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// removeLines drops lines from a file, which may be absent.
func removeLines(path string, lines ...string) error {
	old, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	drop := map[string]bool{}
	for _, l := range lines {
		drop[l] = true
	}
	var kept []string
	for l := range strings.SplitAfterSeq(string(old), "\n") {
		if !drop[strings.TrimRight(l, "\n")] {
			kept = append(kept, l)
		}
	}
	text := strings.Join(kept, "")
	if text == string(old) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
