//go:build agents

package agents

import "embed"

//go:embed *.zst
var carried embed.FS
