package state

import "errors"

// ErrHandover is the cause (context.Cause) of a context that ends because the
// server does, not because somebody wants the work undone: leave everything as
// it is, the request goes on where it stopped on the next server.
var ErrHandover = errors.New("the server is going down; the request continues on the next one")
