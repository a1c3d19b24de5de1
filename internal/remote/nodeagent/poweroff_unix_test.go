//go:build unix

package nodeagent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A machine that marks its end leaves the mark when it is to end, and only then.
func TestMarksEnd(t *testing.T) {
	bin := t.TempDir()
	mark := filepath.Join(t.TempDir(), "ends")
	off := filepath.Join(t.TempDir(), "off")
	for name, text := range map[string]string{
		"sudo":     "#!/bin/sh\nshift\nexec \"$@\"\n",
		"poweroff": "#!/bin/sh\n[ -e " + mark + " ] && echo ends > " + off + " || echo stops > " + off + "\nexit 1\n",
		"shutdown": "#!/bin/sh\nexit 1\n", "systemctl": "#!/bin/sh\nexit 1\n", "halt": "#!/bin/sh\nexit 1\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	m := MarksEnd{mark}
	for _, c := range []struct {
		act  func() error
		said string
	}{{func() error { return m.Terminate(t.Context()) }, "ends\n"}, {func() error { return m.Stop(t.Context()) }, "stops\n"}} {
		if c.said == "stops\n" { // left by an earlier one
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.act(); err == nil {
			t.Error("it is still on, and there is no error")
		}
		if text, err := os.ReadFile(off); err != nil || string(text) != c.said {
			t.Errorf("it powers off and %q, want %q: %v", text, c.said, err)
		}
		if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the mark is there after a failure: %v", err)
		}
	}
}
