// Package commands finds the commands that sources and documents name.
package commands

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// EachText calls f with every text constant of the sources below a folder, but for tests.
// Constants that are added up are one text; what is computed between them is a word.
func EachText(root string, f func(at, text string)) error {
	files := gotoken.NewFileSet()
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); name == "testdata" || name == "test" || strings.HasPrefix(name, ".") && path != root {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if text, ok := addedUp(n); ok {
					f(files.Position(n.Pos()).String(), text)
					return false
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == gotoken.STRING {
					f(files.Position(n.Pos()).String(), text)
				}
			}
			return true
		})
		return nil
	})
}

// addedUp is the text of a sum with a text constant in it.
func addedUp(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == gotoken.STRING
	case *ast.BinaryExpr:
		a, isA := addedUp(e.X)
		b, isB := addedUp(e.Y)
		if e.Op != gotoken.ADD || !isA && !isB {
			return "", false
		}
		if !isA {
			a = "1"
		}
		if !isB {
			b = "1"
		}
		return a + b, true
	}
	return "", false
}

// prose are words after "sky" where it is the subject of a sentence, or the name of a
// file, a certificate or a header.
var prose = map[string]bool{
	"has": true, "have": true, "so": true, "runs": true, "knows": true, "cannot": true, "keeps": true, "names": true, "installs": true, "configuration": true,
	"makes": true, "stays": true, "encryption": true, "cluster": true, "agent": true, "agent:": true, "needs": true, "never": true, "finds": true, "can": true,
}

var (
	// A command is named after a mark that ends the prose before it, at the beginning
	// of a text, or in backquotes or quotes.
	named = regexp.MustCompile("(?:^|: |`|\"|'|\\(|\t|  |&& |with |run |try |See |see |or |use )(sky [a-z][a-z-]*[^`\n]*)")
	// What ends it: prose, or a mark after which prose begins.
	ended  = regexp.MustCompile("(`| \\(|\\. |\\.$|, |; | && |\\)|'|\"| — | # | (and|or|to|for|with|shows?|tells?|lists?|says|in|of|on|as|is|does|when|if|from|again|while|only|starts?|instead|by|this|the|until|first|afterwards|before) |\\|)")
	toFill = regexp.MustCompile(` [A-Z]\b`) // a number to fill in, as in --tail N
	verb   = regexp.MustCompile(`%(\[\d+\])?[-+#0-9.]*[a-zA-Z]`)
)

// Named are the commands in a line of prose, without the word sky. Sentences
// whose subject is sky ("sky finds …") are no commands.
func Named(line string) [][]string {
	var out [][]string
	line = toFill.ReplaceAllString(line, " 1")
	for _, m := range named.FindAllStringSubmatch(line, -1) {
		text := m[1]
		if at := ended.FindStringIndex(text); at != nil {
			text = text[:at[0]]
		}
		words := strings.Fields(verb.ReplaceAllString(text, "1"))
		if len(words) < 2 || words[1] == "1" || prose[words[1]] || text == "sky api server" {
			continue
		}
		out = append(out, words[1:])
	}
	return out
}
