package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestShownCommandsExist: what the help's examples and the documentation tell
// people to type is understood, options included.
func TestShownCommandsExist(t *testing.T) {
	for _, d := range Reference() {
		for line := range strings.Lines(d.Example) {
			for _, c := range skyCommands(line) {
				if problem := notUnderstood(c, true); problem != "" {
					t.Errorf("example of %s: %s: %s", d.Path, c, problem)
				}
			}
		}
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	span := regexp.MustCompile("`(sky [^`]+)`")
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		fence := ""
		for line := range strings.Lines(string(text)) {
			if mark, ok := strings.CutPrefix(line, "```"); ok {
				if fence == "" {
					fence = "```" + mark
				} else {
					fence = ""
				}
				continue
			}
			if fence == "" {
				for _, m := range span.FindAllStringSubmatch(line, -1) {
					for _, c := range skyCommands(m[1]) {
						if problem := notUnderstood(c, false); problem != "" {
							t.Errorf("%s: %s: %s", page, c, problem)
						}
					}
				}
				continue
			}
			if shown := strings.TrimPrefix(line, "$ "); strings.HasPrefix(shown, "sky ") {
				for _, c := range skyCommands(shown) {
					if problem := notUnderstood(c, true); problem != "" {
						t.Errorf("%s: %s: %s", page, c, problem)
					}
				}
			}
		}
	}
}

// skyCommands are the sky commands in a line of shell, without the word sky.
func skyCommands(line string) [][]string {
	var out [][]string
	var words []string
	end := func() {
		if len(words) > 1 && words[0] == "sky" {
			out = append(out, words[1:])
		}
		words = nil
	}
	for _, w := range shellWords(line) {
		switch w {
		case "|", "&&", "||", ";", "<", ">", ">>":
			end()
		case "#":
			end()
			return out
		default:
			words = append(words, w)
		}
	}
	end()
	return out
}

// shellWords splits a line at spaces outside of quotes.
func shellWords(line string) []string {
	var out []string
	var word strings.Builder
	var quote rune
	inWord := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\n' || r == '\t' || r == ';':
			if inWord {
				out = append(out, word.String())
			}
			word.Reset()
			inWord = false
			if r == ';' {
				out = append(out, ";")
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		out = append(out, word.String())
	}
	return out
}

// notUnderstood says why the command line would refuse args; "" if it would not.
// whole says that args are a complete command, not a mention of one.
func notUnderstood(args []string, whole bool) string {
	if strings.ToUpper(args[0]) == args[0] {
		return "" // a placeholder: sky COMMAND -h
	}
	root := newApp(Program{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Environ: []string{}}).root()
	args = rewrite(args)
	if err := unknownCommand(root, args); err != nil {
		return err.Error()
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err.Error()
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if whole {
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			return err.Error()
		}
	}
	return ""
}

func TestNotUnderstood(t *testing.T) {
	for line, wrong := range map[string]bool{
		"sky status":                           false,
		"sky COMMAND -h":                       false,
		"sky laucnh x":                         true,
		"sky launch --nodes 3 x":               true,
		"sky task check":                       true,
		"sky down a; sky task frmat x":         true,
		"sky task schema > file":               false,
		"echo sky nonsense":                    false,
		"sky exec dev -- 'sky nonsense --bad'": false,
		"sky status # sky nonsense":            false,
	} {
		bad := false
		for _, c := range skyCommands(line) {
			bad = bad || notUnderstood(c, true) != ""
		}
		if bad != wrong {
			t.Errorf("%s: wrong: %v, want %v", line, bad, wrong)
		}
	}
}
