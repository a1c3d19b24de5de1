//go:build linux

// Package owner reports which job a process belongs to: by the variable that the agent sets
// for all processes of a job.
package owner

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Variable holds the key of the rank that a process belongs to.
const Variable = "SKY_RANK"

// depth is how many ancestors are asked: a process may have been started with an
// environment of its own.
const depth = 32

// Of is the value of the variable in the environment that the process, or the nearest of
// its ancestors that has it, was started with; "" if that cannot be known.
func Of(pid int) string {
	for n := 0; pid > 1 && n < depth; n++ {
		if key := variable(pid); key != "" {
			return key
		}
		pid = parent(pid)
	}
	return ""
}

func variable(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for item := range bytes.SplitSeq(data, []byte{0}) {
		if value, ok := bytes.CutPrefix(item, []byte(Variable+"=")); ok {
			return string(value)
		}
	}
	return ""
}

func parent(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return 0
	}
	fields := strings.Fields(string(data[i+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}
