package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/task"
)

// fileKind is what a word of an entry point names on this machine.
type fileKind int

const (
	noFile fileKind = iota
	taskFile
	brokenTask // has the name of a task file
	scriptFile // any other file
	folder
)

// entry is an entry point before it is taken for a task file or a command.
type entry struct {
	words   []string
	command string // that got it, with its options: "sky launch -c dev"
	copying string // the same without --workdir
	// synced says that relative paths may exist where the command runs.
	synced bool
	kind   func(word string) fileKind
	// installed reports whether a word is a program of this machine, so most likely
	// of the cluster's too.
	installed func(word string) bool
}

// mistake says why the words cannot be meant as a command to run on a cluster, and
// what to type instead; "" if they can. One word may be anything in quotes: then it
// is a command with its arguments, or a task file.
func (e entry) mistake() string {
	if len(e.words) == 0 {
		return ""
	}
	if k := e.kind(strings.Join(e.words, " ")); k == taskFile || k == brokenTask {
		return ""
	}
	words := strings.Fields(strings.Join(e.words, " "))
	vars := 0
	for vars < len(words) && isAssignment(words[vars]) {
		vars++
	}
	if vars == len(words) || e.installed(words[vars]) {
		return ""
	}
	first, rest := words[vars], words[vars+1:]
	switch kind := e.kind(first); {
	case kind == taskFile || kind == brokenTask:
		line := e.command
		for _, w := range append(words[:vars:vars], rest...) {
			if !isAssignment(w) {
				return fmt.Sprintf("%s is a task file, and '%s' beside it is neither an option nor a variable. To run the task: %s %s", first, w, e.command, first)
			}
			line += " --env " + w
		}
		return fmt.Sprintf("%s is a task file; variables for it need --env before each. To run the task: %s %s", first, line, first)
	case kind == scriptFile && !e.there(first):
		dir, script := filepath.Split(first)
		if filepath.IsLocal(first) && !strings.HasPrefix(first, "~") {
			dir, script = ".", first
		}
		return fmt.Sprintf("%s is a file on this machine, not a task file and not a command of the cluster. To copy its folder there and run it: %s --workdir %s -- %s",
			first, e.copying, dir, strings.Join(append([]string{interpreter(script), script}, rest...), " "))
	case kind == folder && !e.there(first):
		return fmt.Sprintf("%s is a folder on this machine, not a task file. To copy it there and run a command in it: %s --workdir %s -- COMMAND", first, e.copying, first)
	}
	if len(e.words) == 1 {
		return ""
	}
	for _, w := range e.words[1:] {
		if e.kind(w) == taskFile {
			return fmt.Sprintf("'%s' comes before the task file %s, but it is no option. To run the task: %s %s. If all of it is a command for the cluster, put it into quotes", first, w, e.command, w)
		}
	}
	return ""
}

// there reports whether a path may exist where the command runs.
func (e entry) there(path string) bool {
	return e.synced && strings.Contains(path, "/") && filepath.IsLocal(path)
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// interpreter runs a script, by the ending of its name.
func interpreter(script string) string {
	if strings.HasSuffix(script, ".py") {
		return "python3"
	}
	return "bash"
}

// kindOf looks at what a word names on this machine.
func (a *app) kindOf(word string) fileKind {
	path := expandHome(word, a.home)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return noFile
	case info.IsDir():
		return folder
	case fileProblem(path) != "":
		return scriptFile
	}
	switch _, err := task.Load(path); {
	case err == nil:
		return taskFile
	case looksLikeYAML(word):
		return brokenTask
	}
	return scriptFile
}

// installedHere reports whether a word names a program of this machine's PATH, or a
// file where programs are installed.
func (a *app) installedHere(word string) bool {
	if filepath.IsAbs(word) {
		for _, dir := range [...]string{"/bin/", "/sbin/", "/usr/", "/opt/", "/lib/", "/nix/", "/snap/"} {
			if strings.HasPrefix(word, dir) {
				return true
			}
		}
		return false
	}
	if strings.Contains(word, "/") {
		return false
	}
	_, err := exec.LookPath(word)
	return err == nil
}
