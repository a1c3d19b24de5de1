// Package api holds the wire types of the sky API: what a client sends, what
// the server answers, and the words both use for states. The REST server, the
// Go SDK and the command line share these types, so a field exists once.
//
// The shapes follow the SkyPilot REST protocol, API version 53, so that
// existing clients work unchanged.
package api

import "runtime/debug"

// Versions of the protocol. A peer below MinVersion is refused.
const (
	Version    = 53
	MinVersion = 24
	MinRelease = "0.11.0" // of SkyPilot, which speaks MinVersion
)

// ProductVersion is what the server and client call themselves. The linker
// sets Commit for release builds; otherwise it is what go build noted.
var (
	ProductVersion = "1.0.0-dev0"
	Commit         = notKnown
)

const notKnown = "unknown"

func init() {
	if Commit != notKnown { // what the linker sets must be a constant
		return
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		Commit = commitOf(info)
	}
}

// commitOf is the commit that a build is of, with "-dirty" if files were changed.
func commitOf(info *debug.BuildInfo) string {
	commit, changed := notKnown, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "-dirty"
		}
	}
	if commit == notKnown {
		return commit
	}
	return commit + changed
}

// Header names, in both directions unless said otherwise.
const (
	HeaderAPIVersion      = "X-SkyPilot-API-Version"
	HeaderVersion         = "X-SkyPilot-Version"
	HeaderScope           = "X-Sky-Scope"                  // what the caller wants to be held to, as JSON {"user", "workspaces"}; it only takes away
	HeaderRequestID       = "X-Skypilot-Request-ID"        // on every response
	HeaderStreamRequestID = "X-SkyPilot-Stream-Request-ID" // on /api/stream
	HeaderClientType      = "X-SkyPilot-Client-Type"
)

// DefaultPort is where a server that the command line starts listens.
const DefaultPort = 46580
