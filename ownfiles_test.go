package sky_test

import (
	"regexp"
	"strings"
	"testing"
)

// ownFile is what makes files of the server's own machine, or of a folder of it, a
// source for nodes or for an upload.
var ownFile = regexp.MustCompile(`\b(filesync\.(Local|Within)|upload\.(OwnMachine|In)|\w+\.AndOwnMachine)\(`)

// ownFiles are the files of the module that do so, outside of tests, and why
// nobody reads more through them than they may. Everything else that brings files
// to nodes is given an [upload.Files], which the server made when it accepted the
// request.
var ownFiles = map[string]string{
	"internal/upload/files.go":        "asks upload.Files whether paths of this machine count, and opens uploads below their own folder",
	"internal/daemon/files.go":        "what the server found about the caller when it accepted the request",
	"internal/server/uploads.go":      "the caller's own upload",
	"internal/taskfiles/taskfiles.go": "the copies that the server made of a job's own files",
	"internal/remote/mount.go":        "sky-mount, which is sky's own program",
	"internal/controller/kit.go":      "files that the server writes for the jobs controller",
	"internal/cli/upload.go":          "the command line, on its user's own machine",
	"internal/testbed/testbed.go":     "a server of a test's own",
}

func TestOnlyTheseReadFilesOfTheServersMachineForNodes(t *testing.T) {
	found := map[string]bool{}
	sources(t, func(file, text string) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/") {
			return
		}
		for line := range strings.Lines(text) {
			if code := strings.TrimSpace(line); strings.HasPrefix(code, "//") || strings.HasPrefix(code, "func ") || !ownFile.MatchString(code) {
				continue
			}
			found[file] = true
			if ownFiles[file] == "" {
				t.Errorf("%s brings files of the server's machine to nodes: %s\nTake an upload.Files in its place, or say in ownFiles why nobody reads more through it than they may", file, strings.TrimSpace(line))
			}
		}
	})
	for file := range ownFiles {
		if !found[file] {
			t.Errorf("%s does so no more", file)
		}
	}
}
