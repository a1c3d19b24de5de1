package simulate

import (
	"flag"
	"os"
	"runtime"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/serve.md")

const (
	docFile  = "../../../docs/serve.md"
	docBegin = "<!-- The tables are made by: go test ./internal/serve/simulate -run TestTablesAreFresh -update -->\n"
	docEnd   = "<!-- End of the tables. -->\n"
)

// The tables of the documentation are what the program says.
func TestTablesAreFresh(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round products that are added up in another way")
	}
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), "\r\n", "\n")
	before, rest, found := strings.Cut(page, docBegin)
	was, after, ended := strings.Cut(rest, docEnd)
	if !found || !ended {
		t.Fatal("docs/serve.md has no place for the tables")
	}
	is := Doc()
	if *update {
		if err := os.WriteFile(docFile, []byte(before+docBegin+is+docEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if was != is {
		t.Errorf("the tables of docs/serve.md are not what the program says; write them anew with: go test ./internal/serve/simulate -run TestTablesAreFresh -update\n%s", is)
	}
}
