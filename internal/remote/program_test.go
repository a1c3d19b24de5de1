//go:build linux

package remote

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	endian "encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/buildid"
)

// otherArch is the other kind of processor that nodes may have; its name is as long
// as that of this one.
var otherArch = map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]

// beside puts a file next to the running program, for the length of the test.
func beside(t *testing.T, name string, content []byte) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// built is this program, said to be built for the other kind of processor.
func built(t *testing.T) []byte {
	t.Helper()
	self, err := os.ReadFile(buildid.Self())
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(self, []byte("build\tGOARCH="+runtime.GOARCH), []byte("build\tGOARCH="+otherArch))
}

func TestAgentsForOtherProcessorsAreFoundBesideTheProgram(t *testing.T) {
	r := connectorOf(t, nil)
	whole := beside(t, "sky-linux-"+otherArch, built(t))
	id, err := buildid.Of(whole)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := r.binary("linux", otherArch); err != nil || b.path != whole || b.id != id {
		t.Errorf("%+v, %v", b, err)
	}
	if path, build, err := r.Program("linux/" + otherArch); err != nil || path != whole || build != id {
		t.Errorf("%s, %s, %v", path, build, err)
	}
	if !r.ours(id) || r.ours("other") {
		t.Errorf("its own builds: %v, %v", r.ours(id), r.ours("other"))
	}

	// A small one is preferred where an agent alone is needed. What was found is kept
	// while it is there.
	small := beside(t, "sky-agent-linux-"+otherArch, built(t))
	if b, err := r.binary("linux", otherArch); err != nil || b.path != whole {
		t.Errorf("%+v, %v", b, err)
	}
	os.Remove(whole)
	if b, err := r.binary("linux", otherArch); err != nil || b.path != small {
		t.Errorf("%+v, %v", b, err)
	}
	if _, _, err := r.Program("linux/" + otherArch); err == nil || !strings.Contains(err.Error(), "put the sky of the same release for linux/"+otherArch) {
		t.Errorf("an agent was taken for a whole sky: %v", err)
	}
}

func TestProgramsThatCannotBeUsedAreNamed(t *testing.T) {
	self, err := os.ReadFile(buildid.Self())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		content []byte
		says    string
	}{
		{"for this processor", self, "it is for linux/" + runtime.GOARCH},
		{"no program", []byte("#!/bin/sh\n"), "unrecognized file format"},
	} {
		path := beside(t, "sky-linux-"+otherArch, tt.content)
		_, agentErr := connectorOf(t, nil).binary("linux", otherArch)
		_, _, programErr := connectorOf(t, nil).Program("linux/" + otherArch)
		for _, err := range []error{agentErr, programErr} {
			if err == nil || !strings.Contains(err.Error(), path+" cannot be used on ") || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	}
}

func TestTheProgramForThisPlatformIsACopyOfTheRunningOne(t *testing.T) {
	r := connectorOf(t, nil)
	path, build, err := r.Program(runtime.GOOS + "/" + runtime.GOARCH)
	if err != nil || build != buildid.ID() {
		t.Fatalf("%s, %v", build, err)
	}
	own, err := fileHash(buildid.Self())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fileHash(path); err != nil || got != own {
		t.Errorf("%s, %v; the running one is %s", got, err, own)
	}
}

func TestOnlyProgramsOfTheSameRevisionGoOntoNodes(t *testing.T) {
	info := func(arch, revision string) *buildinfo.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: arch}, {Key: "vcs.revision", Value: revision}}}
	}
	for _, tt := range []struct {
		own, its *buildinfo.BuildInfo
		says     string
	}{
		{info("amd64", "r1"), info("arm64", "r1"), ""},
		{info("amd64", "r1"), info("arm64", "r2"), "it was built from revision r2, this server from r1"},
		{info("amd64", ""), info("arm64", "r2"), ""}, // nobody knows
		{info("amd64", "r1"), info("arm64", ""), ""},
		{info("amd64", "r1"), info("amd64", "r1"), "it is for linux/amd64"},
	} {
		err := sameBuild(tt.own, tt.its, "linux", "arm64")
		if (err == nil) != (tt.says == "") || err != nil && err.Error() != tt.says {
			t.Errorf("%v, %v: %v", tt.own.Settings, tt.its.Settings, err)
		}
	}
}

// A program that names an interpreter needs the libraries of its machine.
func TestWhichProgramsNeedTheNodesLibraries(t *testing.T) {
	program := func(kind elf.ProgType) string {
		var b bytes.Buffer
		head := elf.Header64{
			Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
			Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
		}
		copy(head.Ident[:], elf.ELFMAG)
		head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
		endian.Write(&b, endian.LittleEndian, head)
		endian.Write(&b, endian.LittleEndian, elf.Prog64{Type: uint32(kind)})
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, b.Bytes(), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, static := range map[string]bool{program(elf.PT_INTERP): false, program(elf.PT_LOAD): true, script: true} {
		if b := (&binary{path: path}); b.static() != static {
			t.Errorf("%s: static is %v", path, !static)
		}
	}
}
