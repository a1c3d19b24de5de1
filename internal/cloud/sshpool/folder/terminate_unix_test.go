//go:build unix

package folder

import (
	"os"
	"path/filepath"
	"testing"
)

// With a node goes the folder of its programs that is not in its home, and nothing else that a
// link may lead to.
func TestProgramsElsewhereGoWithTheNode(t *testing.T) {
	for name, goes := range map[string]bool{RuntimePrefix + "Ab12": true, "precious": false} {
		top := t.TempDir()
		dir, target := filepath.Join(top, ".sky", "nodes", "m"), filepath.Join(top, name)
		for _, d := range []string{filepath.Join(dir, Home, ".sky"), filepath.Join(target, "b1")} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, filepath.Join(dir, Home, ".sky", "runtime")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, Record), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (Node{Dir: dir, Mark: "SKY_TEST_NODE_OF_NOBODY"}).Terminate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: the node's folder is left", name)
		}
		if _, err := os.Stat(target); goes != os.IsNotExist(err) {
			t.Errorf("%s: %v, want that it goes: %v", name, err, goes)
		}
	}
}
