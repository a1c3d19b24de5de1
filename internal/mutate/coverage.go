package main

import (
	"fmt"
	"strings"
)

// coverage reports which lines of which files tests run: file → blocks.
type coverage map[string][]block

type block struct {
	from, to int // lines
	run      bool
}

// readCoverage reads a profile as go test -coverprofile writes it: after the
// first line "FILE:L0.C0,L1.C1 STATEMENTS COUNT" each.
func readCoverage(text string) (coverage, error) {
	c := coverage{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if i == 0 {
			continue // mode: set
		}
		colon := strings.LastIndexByte(line, ':')
		if colon < 0 {
			return nil, fmt.Errorf("coverage profile: line %d has no file name", i+1)
		}
		var b block
		var column, statements, count int
		if _, err := fmt.Sscanf(line[colon+1:], "%d.%d,%d.%d %d %d", &b.from, &column, &b.to, &column, &statements, &count); err != nil {
			return nil, fmt.Errorf("coverage profile: line %d: %w", i+1, err)
		}
		b.run = count > 0
		c[line[:colon]] = append(c[line[:colon]], b)
	}
	return c, nil
}

// line reports whether the line was run, and whether it can be told: nobody
// counts lines outside of blocks.
func (c coverage) line(file string, line int) (run, known bool) {
	for _, b := range c[file] {
		if b.from <= line && line <= b.to {
			if b.run {
				return true, true
			}
			known = true
		}
	}
	return false, known
}
