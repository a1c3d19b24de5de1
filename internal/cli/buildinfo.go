package cli

import "github.com/skypilot-go/sky/internal/buildid"

// clientBuild identifies this binary.
func clientBuild() string { return buildid.ID() }
