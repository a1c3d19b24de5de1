package transfer

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
)

// Keys are what anybody has written. One that cannot be the path of a file below a
// folder is refused, never changed into another one.

const maxName = 255 // bytes in one name of a path

// localPath is the path below a destination, with slashes, of what is at a key;
// prefix is "" or ends in "/". folder: the key stands for a folder, as some tools
// write them.
func localPath(key, prefix string) (at string, folder bool, err error) {
	below, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false, fmt.Errorf("it does not begin with %q", prefix)
	}
	at, folder = strings.CutSuffix(below, "/")
	switch {
	case strings.ContainsRune(below, 0):
		return "", folder, errors.New("it holds a zero byte, which paths cannot")
	case below == "":
		return "", true, nil
	case strings.HasPrefix(below, "/"):
		return "", folder, errors.New("it begins with a slash: its file would lie outside of the destination")
	}
	for name := range strings.SplitSeq(at, "/") {
		if err := checkName(name); err != nil {
			return "", folder, err
		}
	}
	if isPartName(path.Base(at)) {
		return "", folder, errors.New("files of this name are left by unfinished downloads")
	}
	return at, folder, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it has two slashes in a row, between which paths have a name")
	case name == ".", name == "..":
		return fmt.Errorf("it has %q in its path: its file would lie elsewhere", name)
	case len(name) > maxName:
		return fmt.Errorf("a name in its path has %d bytes, at most %d are possible", len(name), maxName)
	case runtime.GOOS == "windows":
		return checkWindows(name)
	}
	return nil
}

// checkWindows refuses names that Windows has other uses for.
func checkWindows(name string) error {
	for _, r := range name {
		if r < 0x20 || strings.ContainsRune(`<>:"\|?*`, r) {
			return fmt.Errorf("it holds %q, which names of files cannot on Windows", r)
		}
	}
	if strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") {
		return fmt.Errorf("%q ends in a dot or a space, which names of files cannot on Windows", name)
	}
	base, _, _ := strings.Cut(strings.ToUpper(name), ".")
	switch base = strings.TrimRight(base, " "); {
	case base == "CON", base == "PRN", base == "AUX", base == "NUL", base == "CONIN$", base == "CONOUT$",
		len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) && base[3] >= '0' && base[3] <= '9':
		return fmt.Errorf("%q is a device on Windows", name)
	}
	return nil
}

// A tree finds paths that are a file and a folder at once, among keys in the order of
// their bytes: what begins with another key comes after it, and before what does not.
type tree struct{ above []string }

// add takes the next path of a file; an error says that a file before it is where its
// folder would be.
func (t *tree) add(at string) error {
	for n := len(t.above); n > 0 && !strings.HasPrefix(at, t.above[n-1]); n = len(t.above) {
		t.above = t.above[:n-1]
	}
	for _, file := range t.above {
		if len(at) > len(file) && at[len(file)] == '/' {
			return fmt.Errorf("%q is an object, too: there cannot be a file and a folder of one name", file)
		}
	}
	t.above = append(t.above, at)
	return nil
}
