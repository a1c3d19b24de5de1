//go:build linux

package harness

import "path/filepath"

// Agents are the pids of the running agents of the cloud's machines.
func (f *Cloud) Agents() []int {
	var pids []int
	files, _ := filepath.Glob(filepath.Join(f.Dir, "machines/*/home/.sky/agent/agent.json"))
	for _, file := range files {
		if pid := agentOf(file); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Processes are those of the cloud's machines.
func (f *Cloud) Processes() []int { return having("FLUFFYCLOUD_MACHINE=" + f.Dir) }
