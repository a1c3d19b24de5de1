//go:build linux

package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/remote/sshconn/sshtest"
)

// says makes a machine answer every command with these lines.
func (m *machines) says(lines string) {
	m.t.Helper()
	shell := filepath.Join(m.home, "shell")
	if err := os.WriteFile(shell, fmt.Appendf(nil, "#!/bin/sh\nread spec\ncat <<'END'\n%s\nEND\n", lines), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.Shell = shell })
}

func TestWhatTheMachineSaysAboutItsContainer(t *testing.T) {
	m := newMachines(t, 1)
	m.c.Notes.Container = "img:1"
	r := m.connector()
	target, err := r.target(m.c, m.c.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, lines string
		doing       []string
		says        string
		is          func(error) bool
	}{
		{"it runs", `{"doing":"pulling img:1"}` + "\n" + `{"doing":"starting it"}` + "\n" + `{"done":true}`, []string{"pulling img:1", "starting it"}, "", nil},
		{"after a login script", "Welcome!\n" + `{"done":true}`, nil, "", nil},
		{"there is no such image", `{"done":true,"error":"manifest unknown"}`, nil, "127.0.0.1: manifest unknown", nil},
		{"a full disk", `{"done":true,"error":"no space left on device","no_space":true}`, nil, "the disk of 127.0.0.1 is full: no space left on device", is[*sshconn.NoSpaceError]},
		{"half an answer", `{"doing":"pulling img:1"}`, []string{"pulling img:1"}, "the connection ended before the container ran", is[*sshconn.UnreachableError]},
		{"very much", strings.Repeat(`{"doing":"x"}`+"\n", 2*containSays) + `{"done":true}`, slices.Repeat([]string{"x"}, containSays), "", nil},
		{"a very long word", `{"doing":"` + strings.Repeat("x", 9*containSaysMost) + `"}` + "\n" + `{"done":true}`, []string{strings.Repeat("x", containSaysMost)}, "", nil},
		{"no answer", "sky: not found", nil, "the connection ended before the container ran", is[*sshconn.UnreachableError]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.says(tt.lines)
			var doing []string
			made := &Containers{Doing: func(what string) { doing = append(doing, what) }}
			name, err := (*sshTransport)(r).contain(t.Context(), m.c, m.c.Nodes[0], target, "/sky", "/home", made)
			if !slices.Equal(doing, tt.doing) {
				t.Errorf("doing %q, want %q", doing, tt.doing)
			}
			if tt.says == "" && (err != nil || name != "sky-hash-0") || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%q, %v", name, err)
			}
			if tt.is != nil && !tt.is(err) {
				t.Errorf("%T: %v", err, err)
			}
		})
	}
}

func TestAMachineWithoutAContainerEngineSaysWhatToDo(t *testing.T) {
	m := newMachines(t, 1)
	m.c.Notes.Container = "img:1"
	bin := t.TempDir()
	for _, tool := range []string{"sh", "cat", "chmod", "mv", "mkdir", "rm", "uname"} {
		link(t, bin, tool)
	}
	m.hosts[0].Set(func(k *sshtest.Knobs) { k.Env = map[string]string{"PATH": bin} })
	err := m.connector().Install(t.Context(), m.c, Containers{})
	if err == nil || !strings.Contains(err.Error(), "head: starting the agent: 127.0.0.1: there is no Docker on the machine") {
		t.Errorf("%v", err)
	}
}
