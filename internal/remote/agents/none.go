//go:build !agents

package agents

import "embed"

var carried embed.FS
