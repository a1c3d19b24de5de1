package config

import "strconv"

// Layer is a kind of source. A later layer wins over an earlier one.
type Layer string

// The layers, weakest first.
const (
	LayerServer      Layer = "server"       // the API server's own configuration
	LayerUser        Layer = "user"         // ~/.sky/config.yaml
	LayerProject     Layer = "project"      // ./.sky.yaml
	LayerTask        Layer = "task"         // the config section of a task
	LayerCommandLine Layer = "command line" // --config, --workspace
	LayerEnvironment Layer = "environment"  // variables that stand for a key
	LayerRequest     Layer = "request"      // what a client sent along
	LayerPolicy      Layer = "admin policy" // what an admin policy answered
)

// Origin is where a value was written. The zero Origin is nowhere.
type Origin struct {
	Layer  Layer  `json:"layer"`
	Source string `json:"source"`         // a file, flag or variable as its user knows it
	Line   int    `json:"line,omitempty"` // from 1; 0 when the source has no lines
	Column int    `json:"column,omitempty"`
}

// String gives the form that editors and terminals can jump to.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.Source
	}
	return o.Source + ":" + strconv.Itoa(o.Line) + ":" + strconv.Itoa(o.Column)
}
