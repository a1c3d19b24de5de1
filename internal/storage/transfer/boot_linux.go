package transfer

import (
	"os"
	"strings"
	"sync"
)

// bootID names this run of the system.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})
