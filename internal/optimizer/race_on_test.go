//go:build race

package optimizer

const raceEnabled = true
