// Package api holds the wire types of the sky API: what a client sends, what
// the server answers, and the words both use for states. The REST server, the
// Go SDK and the command line share these types, so a field exists once.
//
// The shapes follow the SkyPilot REST protocol, API version 53, so that
// existing clients work unchanged.
package api

// Versions of the protocol. A peer below MinVersion is refused.
const (
	Version    = 53
	MinVersion = 24
)

// ProductVersion is what the server and client call themselves. The linker
// sets Commit for release builds.
var (
	ProductVersion = "1.0.0-dev0"
	Commit         = "unknown"
)

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
