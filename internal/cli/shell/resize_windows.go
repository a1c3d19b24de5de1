package shell

import "context"

// Resizes never tells anything: Windows has no signal for it.
func Resizes(context.Context) <-chan struct{} { return nil }
