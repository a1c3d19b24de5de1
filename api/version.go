// Package api holds the wire types of the sky API: what a client sends, what
// the server answers, and the words both use for states. The REST server, the
// Go SDK and the command line share these types, so a field exists once.
//
// The shapes follow the SkyPilot REST protocol, API version 53, so that
// existing clients work unchanged.
package api

import (
	"runtime/debug"
	"sync"
)

// Versions of the protocol. A peer below MinVersion is refused.
const (
	Version    = 53
	MinVersion = 24
	MinRelease = "0.11.0" // of SkyPilot, which speaks MinVersion
)

// ProductVersion is what the server and client call themselves.
var ProductVersion = "1.0.0-dev0"

// linked is the commit of a release build. The linker sets it (-X).
var linked string

const notKnown = "unknown"

// Commit is the commit of this build: the linked one, or what go build noted.
var Commit = sync.OnceValue(func() string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return commitOf(info)
	}
	return notKnown
})

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
